"""Wrong rewrites planted into the passes: every one is found, and blamed on the pass that it was planted into.

Nothing here may be found by chance: the same pipelines without a plant pass on every family and format, and rows,
prompts and weights come from fixed seeds. For speed, passes long before the wrong one run unverified.
"""

from pathlib import Path

import pytest
from verified import Case, planted, verified
from wrong_rewrites import WRONG, Wrong

from paceline.passes.errors import VerifyError


@pytest.fixture(scope="module")
def family(request: pytest.FixtureRequest) -> str:
    """A tiny model's name; see conftest.py."""
    return str(request.param)


FORMATS = ("fp32", "bf16", "int8", "int8_rows16")


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_a_wrong_rewrite_is_found_and_its_pass_blamed(wrong: Wrong, tmp_path: Path) -> None:
    with pytest.raises(VerifyError) as caught:
        verified(wrong.case, tmp_path, planted(wrong.pass_name, wrong.plant), since=wrong.pass_name)
    assert caught.value.pass_name == wrong.pass_name
    assert {path.name for path in (tmp_path / "kept" / wrong.pass_name).glob("*.onnx")} == {"before.onnx", "after.onnx"}


def test_there_are_enough_of_them_and_in_every_pass_that_computes() -> None:
    assert len({wrong.name for wrong in WRONG}) == len(WRONG) >= 25


@pytest.mark.parametrize("weights", FORMATS)
def test_no_false_alarm(family: str, weights: str, tmp_path: Path) -> None:
    """Up to the cache all formats have the same passes: those are verified once."""
    since = None if weights == "fp32" else "insert_paged_attention"
    verdicts = verified(Case(family, weights), tmp_path, since=since).verdicts
    assert {verdict.status for verdict in verdicts} == {"same graph", "passed"}
    assert sum(verdict.status == "passed" for verdict in verdicts) >= 3, "many passes do change what is computed"


@pytest.mark.parametrize("case", [wrong.case for wrong in WRONG if wrong.case.is_calibrated][:2], ids=str)
def test_no_false_alarm_with_calibration(case: Case, tmp_path: Path) -> None:
    assert {verdict.status for verdict in verified(case, tmp_path).verdicts} == {"same graph", "passed"}
