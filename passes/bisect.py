"""Find the pass that makes a pipeline wrong in a few numeric runs: halving over how many of its passes have run.

A model and passes flow in; an error naming the first prefix whose numbers are off flows out, or the model after all of
them. It costs log2 of their number; verifying costs one run a pass, and is finer: it compares with the graph just
before.
"""

import shutil
from collections.abc import Sequence

import onnx_ir as ir

from .base import Pass, PassReport, run_passes
from .compare_rows import Figures, compare_observations
from .observe import Observations, observe
from .target import Target
from .tolerances import RESCALING, Tolerance, combined, faults_of, tolerance_of
from .verify import Setup, Verdict, Verified, blame
from .weight_files import WeightFiles

__all__ = ["bisect_passes"]


def bisect_passes(model: ir.Model, target: Target, passes: Sequence[Pass], setup: Setup) -> Verified:
    """Run all `passes` on `model`, in place. Raises: VerifyError naming the first wrong one."""
    versions, reports, tolerances = [model.clone()], list[PassReport](), list[Tolerance]()
    for one_pass in passes:
        reports += run_passes(model, target, (one_pass,))
        tolerances.append(tolerance_of(reports[-1].name, versions[-1], target, setup.tolerances or {}))
        versions.append(model.clone())
    setup.folder.mkdir(parents=True, exist_ok=True)
    try:
        search = Search(versions, [report.name for report in reports], tolerances, setup)
        verdict = search.last()
        if verdict.faults:
            place = search.first_wrong()
            blame(search.judge(place, since=place - 1), versions[place - 1], versions[place], setup)
    finally:
        shutil.rmtree(setup.folder, ignore_errors=True)
    return Verified(model, tuple(reports), (verdict,))


class Search:
    """Versions of one graph, the i-th behind i passes."""

    def __init__(
        self, versions: Sequence[ir.Model], names: Sequence[str], tolerances: Sequence[Tolerance], setup: Setup
    ) -> None:
        self._versions, self._names, self._tolerances, self._setup = versions, names, tolerances, setup
        self._files = WeightFiles(setup.folder, setup.threads)
        self._seen: dict[int, Observations] = {}

    def last(self) -> Verdict:
        """Of all passes together."""
        return self.judge(len(self._names))

    def first_wrong(self) -> int:
        """The shortest prefix that is wrong, by halving; the whole is known to be."""
        right, wrong = 0, len(self._names)
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if self.judge(middle).faults:
                wrong = middle
            else:
                right = middle
        return wrong

    def judge(self, place: int, since: int = 0) -> Verdict:
        """The version behind `place` passes against the one behind `since`."""
        name, between = self._names[place - 1], slice(since, place)
        tolerance = combined(self._tolerances[between])
        figures: tuple[Figures, ...] = ()
        try:
            before, after = self._observed(since), self._observed(place)
            is_rescaled = any(name in RESCALING for name in self._names[between])
            figures = tuple(compare_observations(before, after, is_rescaled))
            faults = tuple(faults_of(figures, tolerance))
        except Exception as error:  # as verify.py: what does not run is wrong
            faults = (f"{type(error).__name__}: {error}"[:400],)
        return Verdict(name, "failed" if faults else "passed", tolerance, figures, faults)

    def _observed(self, place: int) -> Observations:
        if place not in self._seen:
            setup = self._setup
            folder = setup.folder / f"seen_{place}"
            self._seen[place] = observe(self._versions[place], setup.facts, setup.scenario, self._files, folder)
        return self._seen[place]
