"""attach_meanings: one function for each meaning in use, the graph shared, the order fixed."""

import onnx_ir as ir
from graph_text import graph

from paceline.passes.attach_meanings import with_meanings

TEXT = """(float[T,8] x, float[T,4] r, float[4] w) => (float[T,4] y, float[T,4] z, float[T,4] u) {
    a = paceline.SwiGLU(x)
    y, b = paceline.ResidualNorm<epsilon = 0.5>(a, r, w)
    z, c = paceline.ResidualNorm<epsilon = 0.25>(a, r, w)
    u, d = paceline.ResidualNorm<epsilon = 0.5>(r, a, w)
}"""


def test_equal_nodes_share_a_function_and_others_do_not() -> None:
    model = graph(TEXT)
    attached = with_meanings(model)
    assert attached.graph is model.graph
    assert not model.functions
    assert [name for _, name, _ in attached.functions] == ["ResidualNorm", "ResidualNorm", "SwiGLU"]
    overloads = [node.overload for node in model.graph]
    assert overloads[1] == overloads[3] != overloads[2]
    assert {node.op_identifier() for node in model.graph} == set(attached.functions)


def test_attaching_twice_gives_the_same_bytes() -> None:
    once, twice = (ir.to_proto(with_meanings(graph(TEXT))).SerializeToString(deterministic=True) for _ in range(2))
    model = graph(TEXT)
    with_meanings(model)
    assert once == twice == ir.to_proto(with_meanings(model)).SerializeToString(deterministic=True)


def test_a_changed_attribute_changes_the_meaning() -> None:
    """A stale overload would run the old epsilon."""
    model = graph(TEXT)
    with_meanings(model)
    node = model.graph.node(1)
    stale = node.overload
    node.attributes["epsilon"] = ir.AttrFloat32("epsilon", 0.125)
    with_meanings(model)
    assert node.overload != stale


def test_a_graph_without_our_operators_gets_no_functions() -> None:
    assert not with_meanings(graph("(float[T] x) => (float[T] y) { y = Abs(x) }")).functions
