"""Finding a wrong pass by halving: the same blame as verifying each pass, in log2 runs."""

import math
from pathlib import Path

import pytest
from exports import export_of
from verified import Case, planted, setup_for
from wrong_rewrites import WRONG

from paceline.passes import bisect, pipeline
from paceline.passes.bisect import bisect_passes
from paceline.passes.errors import VerifyError

PORTABLE = {one_pass.__name__ for one_pass in pipeline.PORTABLE}
EXACT = [wrong for wrong in WRONG if wrong.pass_name in PORTABLE and wrong.case.family == "llama"]
BOTH_ENDS, JUST_BEFORE = 2, 1


@pytest.mark.parametrize("wrong", EXACT[::3], ids=lambda wrong: wrong.name)
def test_the_wrong_pass_is_found_in_few_runs(wrong: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    observe = bisect.observe
    monkeypatch.setattr(bisect, "observe", lambda *args: runs.append(1) or observe(*args))
    case = Case(weights="fp32")
    passes = planted(wrong.pass_name, wrong.plant)[: len(pipeline.PORTABLE)]
    with pytest.raises(VerifyError) as caught:
        bisect_passes(export_of("llama")[1].model, case.target, passes, setup_for(case, tmp_path))
    assert caught.value.pass_name == wrong.pass_name
    assert len(runs) <= BOTH_ENDS + JUST_BEFORE + math.ceil(math.log2(len(passes)))


def test_two_runs_tell_that_nothing_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    observe = bisect.observe
    monkeypatch.setattr(bisect, "observe", lambda *args: runs.append(1) or observe(*args))
    case = Case(weights="fp32")
    found = bisect_passes(export_of("llama")[1].model, case.target, pipeline.PORTABLE, setup_for(case, tmp_path))
    assert len(runs) == BOTH_ENDS
    assert [verdict.status for verdict in found.verdicts] == ["passed"]
    assert len(found.reports) == len(pipeline.PORTABLE)
