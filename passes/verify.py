"""Run passes and check the numbers behind each of them, so that a wrong one is named before its result is used.

A model, passes and a scenario flow in; the model after them, a report and a verdict a pass flow out. Each version of
the graph is run once: what comes after one pass is what comes before the next. Comparing every version with the first
was the alternative and lost: rounding adds up, and a tolerance for all of it would let a fault through.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NoReturn

import onnx_ir as ir

from ..plugins.contract import GraphFacts
from .base import Pass, PassReport, run_passes
from .compare_rows import Figures, compare_observations
from .errors import VerifyError
from .observe import Observations, observe
from .same_computation import Numbers, computation_key
from .scenario import Scenario
from .target import Target
from .tolerances import RESCALING, Tolerance, faults_of, tolerance_of
from .weight_files import WeightFiles

__all__ = ["Save", "Setup", "Verdict", "Verified", "blame", "verify_passes"]

Save = Callable[[ir.Model, Path], None]
Status = Literal["same graph", "passed", "failed", "reverted"]


@dataclass(frozen=True)
class Setup:
    """What all passes of a pipeline are verified with. `folder` is for files; graphs of a failed pass stay in `kept`.

    `policy` says what becomes of a failed pass; those in `essential` cannot be reverted. `tolerances` overrides the
    relative error that single passes may make. `save` writes a graph for a person to look at.
    """

    facts: GraphFacts
    scenario: Scenario
    folder: Path
    kept: Path
    save: Save
    policy: Literal["stop", "revert"] = "stop"
    essential: tuple[str, ...] = ()
    tolerances: Mapping[str, float] | None = None
    threads: int = 1


@dataclass(frozen=True)
class Verdict:
    """Of one pass: what it may differ by, by how much it does, and what is too much in words."""

    name: str
    status: Status
    tolerance: Tolerance
    figures: tuple[Figures, ...] = ()
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verified:
    """The model after the passes that were kept."""

    model: ir.Model
    reports: tuple[PassReport, ...]
    verdicts: tuple[Verdict, ...]


def verify_passes(model: ir.Model, target: Target, passes: Sequence[Pass], setup: Setup) -> Verified:
    """Run `passes` on `model`, which is edited in place or, where a pass is reverted, left for a copy.

    Raises: PassError as `run_passes`; VerifyError naming the pass whose numbers are wrong, if the policy is to stop.
    """
    run = Run(model, target, setup)
    try:
        for one_pass in passes:
            run.step(one_pass)
    finally:
        shutil.rmtree(setup.folder, ignore_errors=True)
    return Verified(run.model, tuple(run.reports), tuple(run.verdicts))


class Run:
    """One pipeline on its way: the model so far, and what it was seen to answer."""

    def __init__(self, model: ir.Model, target: Target, setup: Setup) -> None:
        setup.folder.mkdir(parents=True, exist_ok=True)
        self.model = model
        self.reports: list[PassReport] = []
        self.verdicts: list[Verdict] = []
        self._target, self._setup = target, setup
        self._files = WeightFiles(setup.folder, setup.threads)
        self._numbers = Numbers()
        self._key = computation_key(model, self._numbers)
        self._seen: Observations | None = None
        self._count = 0

    def step(self, one_pass: Pass) -> None:
        """Run one pass, judge it, and keep or revert it."""
        before = self.model.clone()
        (report,) = run_passes(self.model, self._target, (one_pass,))
        key = computation_key(self.model, self._numbers)
        tolerance = tolerance_of(report.name, before, self._target, self._setup.tolerances or {})
        if key == self._key:
            self._accept(report, Verdict(report.name, "same graph", tolerance))
            return
        seen = self._seen or self._observe(before)
        after, verdict = self._judge(report.name, seen, tolerance)
        if verdict.faults:
            self._seen, self.model = seen, self._revert(verdict, before)
            return
        self._forget(seen)
        self._seen, self._key = after, key
        self._accept(report, verdict)

    def _accept(self, report: PassReport, verdict: Verdict) -> None:
        self.reports.append(report)
        self.verdicts.append(verdict)

    def _judge(self, name: str, before: Observations, tolerance: Tolerance) -> tuple[Observations | None, Verdict]:
        """The verdict; a graph that does not run, or answers in another shape, is wrong like one with wrong numbers."""
        figures: tuple[Figures, ...] = ()
        try:
            after = self._observe(self.model)
            figures = tuple(compare_observations(before, after, name in RESCALING))
            faults = tuple(faults_of(figures, tolerance))
        except Exception as error:  # onnxruntime raises many kinds
            return None, Verdict(name, "failed", tolerance, figures, (f"{type(error).__name__}: {error}"[:400],))
        return after, Verdict(name, "failed" if faults else "passed", tolerance, figures, faults)

    def _observe(self, model: ir.Model) -> Observations:
        self._count += 1
        folder = self._setup.folder / f"seen_{self._count}"
        return observe(model, self._setup.facts, self._setup.scenario, self._files, folder)

    def _forget(self, seen: Observations) -> None:
        shutil.rmtree(seen.folder, ignore_errors=True)

    def _revert(self, verdict: Verdict, before: ir.Model) -> ir.Model:
        """The model to go on with. Raises: VerifyError, if the policy or the pass asks for it."""
        if self._setup.policy == "stop" or verdict.name in self._setup.essential:
            blame(verdict, before, self.model, self._setup)
        keep_graphs(verdict.name, before, self.model, self._setup)
        self.verdicts.append(replace(verdict, status="reverted"))
        return before


def blame(verdict: Verdict, before: ir.Model, after: ir.Model, setup: Setup) -> NoReturn:
    """Keep both graphs and raise `VerifyError` for the pass of `verdict`."""
    folder = keep_graphs(verdict.name, before, after, setup)
    do = (
        "mend the pass: no graph can do without it"
        if verdict.name in setup.essential
        else f"mend the pass, leave it out (passes.{verdict.name}.enabled: false), or set build.on_bad_pass: revert"
    )
    raise VerifyError(
        f"pass {verdict.name} changes the numbers: {'; '.join(verdict.faults[:3])}",
        needed=f"no more than such a pass may change ({verdict.tolerance.kind}: {verdict.tolerance.reason})",
        do=f"compare before.onnx and after.onnx in {folder}, and {do}",
        pass_name=verdict.name,
        figures=verdict.figures,
    )


def keep_graphs(name: str, before: ir.Model, after: ir.Model, setup: Setup) -> Path:
    """Both graphs of a pass where a person can look at them; the folder."""
    folder = setup.kept / name
    folder.mkdir(parents=True, exist_ok=True)
    setup.save(before, folder / "before.onnx")
    setup.save(after, folder / "after.onnx")
    return folder
