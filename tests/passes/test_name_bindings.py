"""name_bindings: the contract's names in the contract's order, or an error that says which are wrong."""

import pytest
from graph_text import graph

from paceline.passes.base import run_passes
from paceline.passes.errors import PassError
from paceline.passes.name_bindings import name_bindings
from paceline.passes.target import Target

TEXT = """(int32[B] context_len, int64[R] logit_rows, int32[B,M] page_table, int32[B1] query_start, int64[T] positions,
    int64[T] input_ids) => (float[R,5] logits) { a = Gather(input_ids, logit_rows)  b = Cast<to = 1>(a)
    logits = Unsqueeze(b, logit_rows) }"""
ORDER = ["input_ids", "positions", "query_start", "context_len", "page_table", "logit_rows"]


def test_inputs_come_in_the_contracts_order() -> None:
    model = graph(TEXT)
    (report,) = run_passes(model, Target(), (name_bindings,))
    assert [value.name for value in model.graph.inputs] == ORDER
    assert report.count == 6
    assert run_passes(model, Target(), (name_bindings,))[0].count == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("logit_rows", "rows", r"\['rows'\] too many and \['logit_rows'\] missing"),
        ("logits", "scores", r"\['scores'\] too many and \['logits'\] missing"),
    ],
)
def test_a_graph_that_breaks_the_contract_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(PassError, match=message):
        run_passes(graph(TEXT.replace(old, new)), Target(), (name_bindings,))
