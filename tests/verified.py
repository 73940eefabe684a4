"""Verifies the passes on a tiny family as a build does, with a wrong rewrite planted into one of them if one is given.

A family, a format and a plant flow in; the verdicts flow out, or the error that blames a pass. Exports are shared.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
from exports import export_of
from tiny_models import VOCAB_SIZE

from paceline.passes import pipeline
from paceline.passes.base import Pass, run_passes
from paceline.passes.calibration import Calibration, LinearRange
from paceline.passes.precision import layers_of
from paceline.passes.scenario import make_scenario
from paceline.passes.target import Target
from paceline.passes.verify import Setup, Verified, verify_passes
from paceline.toolchain.graph_file import save_graph
from paceline.toolchain.optimize import ESSENTIAL

__all__ = ["PASSES", "SCENARIO", "Case", "planted", "setup_for", "verified"]

Plant = Callable[[ir.Model], None]
EXACT = Target(weights="fp32", cache_dtype="float32", page_size=4)
LARGEST = 64.0
LEAD = 2  # passes that are verified before the one in question
PASSES = (*pipeline.PORTABLE, *pipeline.PRECISION, *pipeline.CPU)
SCENARIO = make_scenario(
    [np.random.default_rng(length).integers(0, VOCAB_SIZE, length).tolist() for length in (24, 11, 17)], VOCAB_SIZE
)


@dataclass(frozen=True)
class Case:
    """One family in one format; `is_calibrated` brings made-up ranges and smoothing."""

    family: str = "llama"
    weights: str = "bf16"
    is_calibrated: bool = False

    @property
    def target(self) -> Target:
        """What is built: caches in bf16, but for the exact format."""
        cache = "float32" if self.weights == "fp32" else "bfloat16"
        calibration = calibration_of(self.family) if self.is_calibrated else Calibration()
        return Target(weights=self.weights, cache_dtype=cache, page_size=4, calibration=calibration)


@functools.cache
def calibration_of(family: str) -> Calibration:
    """Ranges wide enough for all rows, and smoothing by factors between 0.5 and 2, equal in heads that share values."""
    model, rng = export_of(family)[1].model, np.random.default_rng(0)
    run_passes(model, EXACT, pipeline.PORTABLE)
    linears = {}
    for layer in layers_of(model.graph):
        width = layer.linear.in_features
        factors = np.exp2(rng.uniform(-1, 1, width)).astype(np.float32)
        if layer.module.endswith("o_proj"):
            factors = np.repeat(factors.reshape(2, 2, -1)[:, :1], 2, axis=1).reshape(-1)
        linears[layer.module] = LinearRange(LARGEST, np.ones(width, np.float32), factors)
    return Calibration(linears)


def planted(name: str, plant: Plant) -> tuple[Pass, ...]:
    """The passes, with `plant` editing the graph at the end of the first pass called `name`."""
    done = []

    def wrap(one_pass: Pass) -> Pass:
        def wrong(model: ir.Model, target: Target) -> int:
            count = one_pass(model, target)
            if not done:
                plant(model)
                done.append(name)
            return count

        wrong.__name__ = one_pass.__name__
        return wrong if one_pass.__name__ == name else one_pass

    return tuple(map(wrap, PASSES))


def setup_for(case: Case, folder: Path, **parts: object) -> Setup:
    """As a build sets verification up; `parts` are laid over it."""
    facts = replace(export_of(case.family)[1].facts, cache_dtype=case.target.cache_dtype)
    setup = Setup(facts, SCENARIO, folder / "work", folder / "kept", save_graph, essential=ESSENTIAL)
    return replace(setup, **parts)


def verified(
    case: Case, folder: Path, passes: tuple[Pass, ...] = PASSES, since: str | None = None, **parts: object
) -> Verified:
    """The model behind all passes, verified from shortly before `since` on. Raises: VerifyError."""
    model = export_of(case.family)[1].model
    names = [one_pass.__name__ for one_pass in passes]
    first = 0 if since is None else max(0, names.index(since) - LEAD)
    run_passes(model, case.target, passes[:first])
    return verify_passes(model, case.target, passes[first:], setup_for(case, folder, **parts))
