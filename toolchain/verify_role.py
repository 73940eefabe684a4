"""Verification in a build: the passes of one role, each checked on real prompts, or searched for the first wrong one.

A recipe, a stage's name and a graph flow in; the graph behind that stage's passes and their reports flow out, and in
the end one `VerifyReport` for the bundle. Without checks the passes just run. Prompts come from the calibration text;
made-up ids were simpler and lost: they do not drive a model where it is used.
"""

import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import onnx_ir as ir

from ..passes import pipeline
from ..passes.base import Pass, PassReport, run_passes
from ..passes.bisect import bisect_passes
from ..passes.scenario import Scenario, make_scenario
from ..passes.target import Target
from ..passes.verify import Setup, Verdict, Verified, verify_passes
from ..plugins.contract import GraphFacts
from ..runtime.tokenizer import BundleTokenizer
from .graph_file import save_graph
from .optimize import ESSENTIAL
from .recipe import Recipe
from .sample_text import load_sample, windows_of

__all__ = ["Checks", "PassRunner", "VerifyReport"]

Checks = Literal["none", "verify", "bisect"]
Keep = tuple[tuple[str, str], ...]
STAGES: Mapping[str, tuple[Pass, ...]] = {
    "portable": pipeline.PORTABLE,
    "precision": pipeline.PRECISION,
    "cpu": pipeline.CPU,
}
VERBS: Mapping[Checks, str] = {"none": "", "verify": "verify: ", "bisect": "bisect: "}
LENGTHS = (40, 21, 33)  # tokens of the prompts; on SmolLM2-135M a scenario of 94 rows takes 0.5 s in float32
LONGEST = 600  # tokens; a window that no prompt of this length leaves is told in the report
BEYOND = 9  # tokens behind the end of a window


@dataclass(frozen=True)
class VerifyReport:
    """By stage the verdicts, newest last; `num_rows` were compared, `unreached` are windows longer than any prompt."""

    stages: Mapping[str, tuple[Verdict, ...]]
    num_rows: int
    unreached: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """For reports/verify.json."""
        stages = {stage: [_rounded(asdict(verdict)) for verdict in verdicts] for stage, verdicts in self.stages.items()}
        return {"rows": self.num_rows, "windows_not_reached": list(self.unreached), "stages": stages}


class PassRunner:
    """Runs the stages of one role, with the checks that the build asked for."""

    def __init__(
        self,
        recipe: Recipe,
        role: str,
        facts: GraphFacts,
        tokenizer: BundleTokenizer,
        work: Path,
        kept: Path,
        checks: Checks,
    ) -> None:
        self._recipe, self._role, self._facts, self._tokenizer = recipe, role, facts, tokenizer
        self._work, self._kept, self._checks = work, kept, checks
        self._scenario: Scenario | None = None
        self._unreached: tuple[int, ...] = ()
        self._stages: dict[str, tuple[Verdict, ...]] = {}
        self._left_out = {name for name, options in recipe.passes.items() if not options.enabled}
        self._verified: Keep | None = None  # what the target kept higher when it was verified
        self._to_ship: Keep | None = None
        shutil.rmtree(kept, ignore_errors=True)  # an older failure's

    @property
    def verb(self) -> str:
        """What to put before a stage's title."""
        return VERBS[self._checks]

    def run(self, stage: str, model: ir.Model, target: Target) -> tuple[ir.Model, tuple[PassReport, ...]]:
        """The model behind the passes of `stage`. A gate tries many targets: the first is checked, and `must_repeat`'s.

        Raises: PassError, VerifyError.
        """
        passes = tuple(one for one in STAGES[stage] if one.__name__ not in self._left_out)
        is_trial = stage in self._stages and target.keep != self._to_ship
        if self._checks == "none" or is_trial:
            return model, run_passes(model, target, passes)
        verified = self._checked(model, target, passes)
        self._verified = target.keep
        self._stages[stage] = verified.verdicts
        self._left_out |= {verdict.name for verdict in verified.verdicts if verdict.status == "reverted"}
        return verified.model, verified.reports

    def must_repeat(self, target: Target) -> bool:
        """Whether `target`, which is to ship, was only tried: its passes are verified when they run once more."""
        self._to_ship = target.keep
        return self._checks != "none" and self._verified != target.keep

    def report(self) -> VerifyReport:
        """Everything so far; of a stage that ran twice, the last time."""
        return VerifyReport(self._stages, self._scenario.num_rows if self._scenario else 0, self._unreached)

    def _checked(self, model: ir.Model, target: Target, passes: tuple[Pass, ...]) -> Verified:
        options = self._recipe.passes.items()
        setup = Setup(
            facts=self._facts,
            scenario=self._prompts(model),
            folder=self._work / "verify",
            kept=self._kept,
            save=save_graph,
            policy=self._recipe.build.on_bad_pass,
            essential=ESSENTIAL,
            tolerances={name: one.tolerance for name, one in options if one.tolerance is not None},
            threads=len(os.sched_getaffinity(0)),
        )
        return (bisect_passes if self._checks == "bisect" else verify_passes)(model, target, passes, setup)

    def _prompts(self, model: ir.Model) -> Scenario:
        """Real text, cut to a few short prompts; one of them longer than the shortest window, if that can be."""
        if self._scenario is None:
            windows = sorted({window for node in model.graph if (window := node.attributes.get_int("window", 0))})
            most = min(LONGEST, self._facts.max_positions - BEYOND)
            reached = [window + BEYOND for window in windows if window + BEYOND <= most]
            self._unreached = tuple(window for window in windows if window + BEYOND > most)
            lengths = (max([LENGTHS[0], *reached]), *LENGTHS[1:])
            self._scenario = make_scenario(self._texts(lengths), self._facts.vocab_size)
        return self._scenario

    def _texts(self, lengths: tuple[int, ...]) -> list[list[int]]:
        """Ids, of another kind of text for each length; short texts are repeated."""
        sample = load_sample(self._recipe.calibration.dataset)
        kinds = windows_of(sample, self._tokenizer, max(lengths), 3 * max(lengths) * len(lengths))
        found = [[token for window in windows for token in window] for windows in kinds.values()]
        texts = [found[number % len(found)] for number in range(len(lengths))]
        return [
            (text[number:] * (length // max(1, len(text) - number) + 1))[:length]
            for number, (text, length) in enumerate(zip(texts, lengths, strict=True))
        ]


def _rounded(value: Any) -> Any:
    """Figures to three digits: what is beyond differs from machine to machine."""
    if isinstance(value, float):
        return float(f"{value:.3g}") if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    return value
