"""One role of a bundle, target or draft: from a checkpoint to a portable graph and an engine in their precision.

A job flows in; graph and engine files in the staging folder and a `RoleResult` flow out. The float32 graph is made
once; calibration looks into it, the gate measures against it, and every try of the gate starts from a clone of it.
Setting the precision during export was the alternative and lost: there would be nothing to measure against.
"""

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import onnx_ir as ir

from ..passes.base import PassReport
from ..passes.calibration import Calibration, roles_from_json
from ..passes.target import Target
from ..plugins.contract import GraphFacts
from ..runtime.tokenizer import BundleTokenizer
from .calibrate import CalibrationSettings, calibrate, check_fits, needs_calibration
from .check_numbers import check_numbers
from .check_precision import check_formats, formats_in, planned_formats
from .checkpoint import Checkpoint
from .errors import RecipeError
from .evaluate import Accuracy, ReferenceScores, measure_accuracy
from .export import export_model
from .gate import GateResult, pass_gate
from .graph_file import save_graph
from .observe_layers import Observed, observe_layers
from .progress import Progress
from .rank_layers import Sensitivity, rank_layers
from .recipe import Recipe
from .sample_text import CheckpointTexts, load_sample, windows_of
from .verify_role import Checks, PassRunner, VerifyReport
from .window_runner import WindowRunner

__all__ = ["RoleBuild", "RoleJob", "RoleResult", "build_role", "num_threads"]


@dataclass(frozen=True)
class RoleJob:
    """What the stages of one role share.

    `work` is a folder for files that are not part of the bundle, `kept` one for what a failed build leaves to look at.
    """

    role: str
    checkpoint: Checkpoint
    recipe: Recipe
    target: Target
    staging: Path
    work: Path
    progress: Progress
    kept: Path
    checks: Checks

    def graph_path(self) -> Path:
        """Where the portable graph goes."""
        return self.staging / "graph" / f"{self.role}.onnx"

    def engine_path(self) -> Path:
        """Where the engine goes."""
        return self.staging / "engines" / self.target.name / f"{self.role}.onnx"

    @cached_property
    def tokenizer(self) -> BundleTokenizer:
        """The checkpoint's own."""
        return BundleTokenizer(CheckpointTexts(self.checkpoint.tokenizer_files()))


@dataclass(frozen=True)
class RoleResult:
    """What became of a role: `target` has the calibration and the formats that were really taken."""

    facts: GraphFacts
    target: Target
    passes: tuple[PassReport, ...]
    formats: Mapping[str, str]
    gate: GateResult | None
    verified: VerifyReport


class RoleBuild:
    """The float32 graph of one role, and what is made of it."""

    def __init__(self, job: RoleJob) -> None:
        self._job = job
        with job.progress.stage(f"{job.role}: look at the weights"):
            check_numbers(job.checkpoint)
        with job.progress.stage(f"{job.role}: export"):
            exported = export_model(job.checkpoint, job.target)
        self._model, self.facts = exported.model, exported.facts
        self.float_facts = replace(exported.facts, cache_dtype=job.target.float_cache_dtype)
        self.runner = PassRunner(job.recipe, job.role, self.facts, job.tokenizer, job.work, job.kept, job.checks)
        with job.progress.stage(f"{job.role}: {self.runner.verb}optimize"):
            self._model, self._passes = self.runner.run("portable", self._model, job.target)
        self._precision: tuple[PassReport, ...] = ()
        self.formats: Mapping[str, str] = {}

    def for_job(self, job: RoleJob) -> "RoleBuild":
        """Another job on the same float32 graph: formats and cache may differ, all before them must not."""
        other = copy.copy(self)
        other._job = job
        other.facts = replace(self.facts, cache_dtype=job.target.cache_dtype)
        return other

    def save_float(self, path: Path) -> None:
        """Write the float32 graph, for whoever measures against it; its cache is `float_facts`'."""
        _save(self._model, path)

    @property
    def passes(self) -> tuple[PassReport, ...]:
        """Reports of all passes behind the graphs that were written last."""
        return self._passes + self._precision

    @cached_property
    def observed(self) -> Observed:
        """What flows through the float32 graph on the recipe's calibration text."""
        options = self._job.recipe.calibration
        with self._job.progress.stage(f"{self._job.role}: observe {options.dataset}"):
            sample = load_sample(options.dataset)
            by_kind = windows_of(sample, self._job.tokenizer, options.window, options.max_tokens)
            windows = [window for kind in by_kind.values() for window in kind]
            return observe_layers(self._model, self.float_facts, windows, self._job.work, num_threads())

    def calibrated(self) -> Target:
        """The target with what its formats need to know."""
        job, options = self._job, self._job.recipe.calibration
        if not needs_calibration(job.target, self._model.graph):
            return job.target
        if options.file is not None:
            return replace(job.target, calibration=self._from_file(Path(options.file)))
        observed = self.observed
        settings = CalibrationSettings(options.method, options.percentile, job.recipe.quantization.smoothing)
        with job.progress.stage(f"{job.role}: calibrate"):
            source: dict[str, str | int | float] = {
                "dataset": Path(options.dataset).name,
                "sha256": load_sample(options.dataset).sha256,
                "method": options.method,
                "tokens": max((seen.num_rows for seen in observed.layers.values()), default=0),
            }
            return replace(job.target, calibration=calibrate(self._model, job.target, observed, settings, source))

    def _from_file(self, path: Path) -> Calibration:
        try:
            calibration = roles_from_json(path.read_text(encoding="utf-8"))[self._job.role]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RecipeError(
                f"{path} is no calibration of the {self._job.role} ({type(error).__name__}: {error})",
                needed="the calibration.json of a bundle",
                do="copy it out of the bundle again, or leave calibration.file out",
            ) from None
        check_fits(calibration, self._model)
        return calibration

    def write(self, target: Target) -> None:
        """The portable graph and the engine for `target`, over what was there. Raises: PrecisionError."""
        job, model = self._job, self._model.clone()
        planned = planned_formats(model, target)
        with job.progress.stage(f"{job.role}: {self.runner.verb}set precision, {target.weights}"):
            model, reports = self.runner.run("precision", model, target)
            self.formats = formats_in(model)
            check_formats(planned, self.formats)
            _save(model, job.graph_path())
        with job.progress.stage(f"{job.role}: {self.runner.verb}lower to {target.name}"):
            model, lowering = self.runner.run(target.name, model, target)
            reports += lowering
            _save(model, job.engine_path())
        self._precision = reports

    def reference(self) -> ReferenceScores:
        """What the float32 graph answers on the gate's text."""
        gate, job = self._job.recipe.gates.accuracy, self._job
        assert gate is not None
        with job.progress.stage(f"{job.role}: reference on {Path(gate.dataset).name}"):
            path = job.work / "reference.onnx"
            self.save_float(path)
            by_kind = windows_of(load_sample(gate.dataset), job.tokenizer, gate.window, gate.max_tokens)
            windows = [window for kind in by_kind.values() for window in kind]
            return ReferenceScores(WindowRunner.on_stock(path, self.float_facts, num_threads()), windows, job.work)

    def measure(self, reference: ReferenceScores) -> Mapping[str, Accuracy]:
        """The files that ship: the portable graph on stock onnxruntime, the engine with our kernels."""
        job = self._job
        with job.progress.stage(f"{job.role}: measure graph and engine"):
            return {
                "portable": measure_accuracy(
                    reference, WindowRunner.on_stock(job.graph_path(), self.facts, num_threads())
                ),
                "engine": measure_accuracy(
                    reference, WindowRunner.with_kernels(job.engine_path(), self.facts, num_threads())
                ),
            }

    def rank(self, target: Target) -> Sequence[Sensitivity]:
        """Layers that can be raised, the worst first."""
        with self._job.progress.stage(f"{self._job.role}: rank layers"):
            return rank_layers(self._model, target, self.observed)


def build_role(job: RoleJob) -> RoleResult:
    """Write the role's graphs, through the gate where the recipe has one. Raises: as the stages; never GateError."""
    build = RoleBuild(job)
    target = build.calibrated()
    limits = job.recipe.gates.accuracy if job.role == "target" else None  # a draft's accuracy is its acceptance
    if limits is None:
        build.write(target)
        return RoleResult(build.facts, target, build.passes, build.formats, None, build.runner.report())
    reference = build.reference()
    result = pass_gate(target, limits, build.write, lambda: build.measure(reference), lambda: build.rank(target))
    if build.runner.must_repeat(result.target):  # layers were raised since
        build.write(result.target)
    return RoleResult(build.facts, result.target, build.passes, build.formats, result, build.runner.report())


def num_threads() -> int:
    """All processors that this process may use."""
    return len(os.sched_getaffinity(0))


def _save(model: ir.Model, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_graph(model, path)
