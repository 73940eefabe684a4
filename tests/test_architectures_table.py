"""docs/architectures.md says what the tests would write: the families of this run line by line, all with --long."""

import pytest
from architectures_table import DOCUMENT, HEAD, REFUSED_HEAD, document, family_row, refusal_row
from tiny_families import FAMILIES, MORE_FAMILIES, MORE_REFUSED, REFUSED

DO = "run 'python tests/architectures_table.py'"


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return DOCUMENT.read_text(encoding="utf-8").splitlines(keepends=True)


def test_the_document_is_what_the_tests_write(lines: list[str], request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--long"):
        assert "".join(lines) == document(), DO
        return
    expected = [*map(family_row, sorted(FAMILIES)), *map(refusal_row, sorted(REFUSED))]
    assert [line for line in expected if line not in lines] == [], DO


def test_nothing_is_left_out_and_nothing_is_made_up(lines: list[str]) -> None:
    """The old bug to expect: a family is dropped from the tests and stays in the document."""
    text = "".join(lines)
    assert text.startswith(HEAD), DO
    assert REFUSED_HEAD in text, DO
    rows = [line.split("|")[1].strip() for line in lines if line.startswith("| ")]
    names = [*sorted({**FAMILIES, **MORE_FAMILIES}), *sorted({**REFUSED, **MORE_REFUSED})]
    assert [row for row in rows if row != "family"] == [f"`{name}`" for name in names], DO
