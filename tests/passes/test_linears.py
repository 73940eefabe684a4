"""linears: what is a linear layer, and the reason where there is none."""

import numpy as np
import pytest
from graph_text import graph, weights

from paceline.passes.linears import Linear, linear_behind

WEIGHTS = weights(w=[4, 6], stored=[6, 4], b=[6], wrong=[4], stack=[2, 4, 6])


def linear_of(body: str) -> Linear | str:
    """The linear layer behind y of a small graph."""
    model = graph(f"(float[T,4] x, float[T,6] z) => (float[T,6] y) {{ {body} }}", **WEIGHTS)
    return linear_behind(model.graph.outputs[0])


@pytest.mark.parametrize(
    ("body", "stored_transposed", "has_bias"),
    [
        ("y = MatMul(x, w)", False, False),
        ("t = Transpose <perm = [1, 0]> (stored)\n y = MatMul(x, t)", True, False),
        ("t = Transpose(stored)\n p = MatMul(x, t)\n y = Add(p, b)", True, True),
        ("p = MatMul(x, w)\n y = Add(b, p)", False, True),
    ],
)
def test_what_is_a_linear_layer(body: str, stored_transposed: bool, has_bias: bool) -> None:
    linear = linear_of(body)
    assert isinstance(linear, Linear)
    assert (linear.x.name, linear.y.name, linear.last_node.outputs[0].name) == ("x", "y", "y")
    assert (linear.in_features, linear.out_features, linear.stored_transposed) == (4, 6, stored_transposed)
    assert (linear.bias is not None) == has_bias
    matrix = WEIGHTS["stored"].T if stored_transposed else WEIGHTS["w"]
    np.testing.assert_array_equal(linear.matrix(), matrix)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = Relu(z)", "y comes from Relu, not from a MatMul"),
        ("y = Add(z, z)", "y adds two computed values: no linear layer"),
        ("p = MatMul(x, w)\n y = Add(p, wrong)", "wrong is no bias: its shape is not [6]"),
        ("p = MatMul(x, w)\n q = Add(p, b)\n y = Mul(p, q)", "y comes from Mul, not from a MatMul"),
        ("p = MatMul(x, w)\n q = Add(p, b)\n y = Add(q, b)", "q is needed without its bias too"),
        ("y = MatMul(x, stack)", "the weight stack of y has shape [2, 4, 6], not two axes"),
        ("t = Transpose(x)\n y = MatMul(t, z)", "the weight of y is not constant"),
    ],
)
def test_what_is_none_says_why(body: str, reason: str) -> None:
    assert linear_of(body) == reason


def test_an_input_is_none() -> None:
    model = graph("(float[T,6] z) => (float[T,6] y) { y = Relu(z) }")
    assert linear_behind(model.graph.inputs[0]) == "z is a graph input or a constant, not the output of a MatMul"
