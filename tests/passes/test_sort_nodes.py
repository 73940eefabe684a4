"""sort_nodes: two orders of one graph become the same, without changing what it computes."""

from graph_text import graph, listing, weights
from pass_case import EXACT, assert_same_numbers

from paceline.passes.base import run_passes
from paceline.passes.sort_nodes import sort_nodes

ONE = """(float[T,4] x) => (float[T,4] y, float[T,4] z) {
    c = Neg(x)  a = Mul(x, v)  b = Add(a, w)  y = Sub(b, c)  z = Abs(c)
}"""
ANOTHER = """(float[T,4] x) => (float[T,4] y, float[T,4] z) {
    a = Mul(x, v)  c = Neg(x)  z = Abs(c)  b = Add(a, w)  y = Sub(b, c)
}"""
SORTED = "a = Mul(x, v)\nb = Add(a, w)\nc = Neg(x)\ny = Sub(b, c)\nz = Abs(c)"


def test_two_orders_become_one() -> None:
    for text, names in ((ONE, "wv"), (ANOTHER, "vw")):
        model = graph(text, **weights(**{name: [4] for name in names}))
        (report,) = run_passes(model, EXACT, (sort_nodes,))
        assert listing(model) == SORTED
        assert list(model.graph.initializers) == ["v", "w"]
        assert report.count > 0
        assert run_passes(model, EXACT, (sort_nodes,))[0].count == 0
        assert_same_numbers(graph(text, **weights(v=[4], w=[4])), model)


def test_nodes_that_nobody_needs_go_to_the_end() -> None:
    model = graph("(float[T,4] x) => (float[T,4] y) { b = Neg(x)  c = Abs(b)  y = Relu(x) }")
    run_passes(model, EXACT, (sort_nodes,))
    assert listing(model) == "y = Relu(x)\nb = Neg(x)\nc = Abs(b)"
