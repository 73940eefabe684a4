"""select_logit_rows: the choice of rows moves up to where it is still only for the logits."""

import numpy as np
import pytest
from graph_text import graph, listing, weights
from pass_case import EXACT

from paceline.passes.base import run_passes
from paceline.passes.compare_graphs import run_graph
from paceline.passes.select_logit_rows import select_logit_rows

WEIGHTS = weights(w=[4], up=[4, 6], down=[6, 4], head=[4, 7])
LAYER = """(float[1,T,4] attention, float[1,T,4] residual) => (float[T,7] logits, float[1,T,4] other) {
    other = Neg(residual)
    total = Add(attention, residual)
    a = RMSNormalization<axis = -1>(total, w)
    b = MatMul(a, up)
    c = MatMul(b, down)
    last = Add(total, c)
    d = RMSNormalization<axis = -1>(last, w)
    e = MatMul(d, head)
    logits = Squeeze(e, zero)
}"""
CHOSEN = """other = Neg(residual)
residual/chosen = Gather(residual, logit_rows, axis=1)
attention/chosen = Gather(attention, logit_rows, axis=1)
total = Add(attention/chosen, residual/chosen)
a = RMSNormalization(total, w, axis=-1)
b = MatMul(a, up)
c = MatMul(b, down)
last = Add(total, c)
d = RMSNormalization(last, w, axis=-1)
e = MatMul(d, head)
logits = Squeeze(e, [0])"""


def inputs(rows: list[int], num_rows: int = 6) -> dict[str, np.ndarray]:
    return {**weights(attention=[1, num_rows, 4], residual=[1, num_rows, 4]), "logit_rows": np.array(rows)}


def test_only_attention_and_what_others_need_is_computed_for_all_rows() -> None:
    model = graph(LAYER, **WEIGHTS, zero=[0])
    (report,) = run_passes(model, EXACT, (select_logit_rows,))
    assert sorted(listing(model).splitlines()) == sorted(CHOSEN.splitlines())
    assert (report.count, report.reasons) == (1, ())
    assert str(model.graph.outputs[0].shape) == "[R,7]"
    assert str(model.graph.outputs[1].shape) == "[1,T,4]"
    assert run_passes(model, EXACT, (select_logit_rows,))[0].count == 0


@pytest.mark.parametrize("rows", [[0], [5], [1, 2, 4], [4, 0, 0], [0, 1, 2, 3, 4, 5]])
def test_chosen_logits_are_those_rows_of_all_logits(rows: list[int]) -> None:
    before, after = graph(LAYER, **WEIGHTS, zero=[0]), graph(LAYER, **WEIGHTS, zero=[0])
    run_passes(after, EXACT, (select_logit_rows,))
    everything, chosen = run_graph(before, inputs(rows)), run_graph(after, inputs(rows))
    np.testing.assert_array_equal(chosen["logits"], everything["logits"][rows])
    np.testing.assert_array_equal(chosen["other"], everything["other"])


def test_a_value_that_another_output_needs_is_the_cut() -> None:
    text = """(float[T,4] x) => (float[T,7] logits, float[T,4] other) {
        a = Relu(x)
        other = Neg(a)
        logits = MatMul(a, head)
    }"""
    model = graph(text, **weights(head=[4, 7]))
    run_passes(model, EXACT, (select_logit_rows,))
    assert "a/chosen = Gather(a, logit_rows, axis=0)" in listing(model)
    assert "logits = MatMul(a/chosen, head)" in listing(model)


def test_an_unknown_operator_is_cut_behind_with_a_reason() -> None:
    model = graph("(float[T,4] x, int64 axis) => (float[T,4] logits) { logits = CumSum(x, axis) }")
    (report,) = run_passes(model, EXACT, (select_logit_rows,))
    assert report.reasons == ("logits: CumSum is not known to treat rows one by one: all logits are computed",)
    assert listing(model) == "logits/all_rows = CumSum(x, axis)\nlogits = Gather(logits/all_rows, logit_rows, axis=0)"
    x = weights(x=[5, 4])["x"]
    found = run_graph(model, {"x": x, "axis": np.array(0), "logit_rows": np.array([4, 1])})["logits"]
    np.testing.assert_allclose(found, np.cumsum(x, axis=0)[[4, 1]], rtol=1e-6)


def test_rows_under_a_broadcast_are_chosen_once() -> None:
    """An input without the rows' axis keeps its shape; one with an axis of 1 there, too."""
    text = """(float[T,4] x, float[4] flat, float[1,4] wide) => (float[T,4] logits) {
        a = Add(x, flat)
        logits = Mul(a, wide)
    }"""
    model = graph(text)
    run_passes(model, EXACT, (select_logit_rows,))
    assert listing(model) == (
        "x/chosen = Gather(x, logit_rows, axis=0)\na = Add(x/chosen, flat)\nlogits = Mul(a, wide)"
    )


def test_what_runs_beside_attention_may_come_before_it() -> None:
    """The old bug: with a parallel MLP (Cohere, GPT-NeoX) every Gather stood before the first node to be sliced.

    Attention, here the operator that is not sliced, came after that node, so its Gather read what nothing had made.
    """
    text = """(float[T,4] x, int64 axis) => (float[T,7] logits) {
        mlp = Relu(x)
        attention = CumSum(x, axis)
        both = Add(attention, mlp)
        logits = MatMul(both, head)
    }"""
    model = graph(text, **weights(head=[4, 7]))
    run_passes(model, EXACT, (select_logit_rows,))
    assert listing(model) == (
        "x/chosen = Gather(x, logit_rows, axis=0)\nmlp = Relu(x/chosen)\n"
        "attention = CumSum(x, axis)\nattention/chosen = Gather(attention, logit_rows, axis=0)\n"
        "both = Add(attention/chosen, mlp)\nlogits = MatMul(both, head)"
    )
    inputs = {**weights(x=[5, 4]), "axis": np.array(0), "logit_rows": np.array([3, 1])}
    everything = run_graph(graph(text, **weights(head=[4, 7])), inputs)["logits"]
    np.testing.assert_allclose(run_graph(model, inputs)["logits"], everything[[3, 1]], rtol=1e-6)
