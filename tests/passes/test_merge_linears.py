"""merge_linears: one product for several, and weights that nobody computes before they are read."""

import numpy as np
import onnx_ir as ir
import pytest
from graph_text import graph, weights

from paceline.passes.merge_linears import merge_linears, mergeable_linears

WEIGHTS = weights(a=[4, 6], b=[4, 2], stored=[3, 4], a_bias=[6], b_bias=[2])


def model_of(body: str, **more: np.ndarray) -> tuple[ir.Model, dict[str, ir.Value]]:
    model = graph(f"(float[T,4] x, float[T,4] z) => (float[T,6] p, float[T,2] q) {{ {body} }}", **WEIGHTS, **more)
    made = {str(output.name): output for node in model.graph for output in node.outputs}
    return model, {role: made[role] for role in ("u", "v")}


TWO = "u = MatMul(x, a)\n t = Transpose <perm = [1, 0]> (stored)\n v = MatMul(x, t)\n p = Relu(u)\n q = Relu(v)"


def test_the_merged_weight_is_read_when_it_is_asked_for() -> None:
    model, values = model_of(TWO)
    reads = []
    stored = model.graph.initializers["stored"]
    array = WEIGHTS["stored"]

    def compute() -> ir.TensorProtocol:
        reads.append(1)
        return ir.Tensor(array)

    stored.const_value = ir.LazyTensor(compute, dtype=ir.DataType.FLOAT, shape=ir.Shape([3, 4]), name="stored")
    linears = mergeable_linears(values)
    assert not isinstance(linears, str)
    merge_linears(model.graph, linears)
    assert reads == []
    tensor = model.graph.initializers["a+stored"].const_value
    assert tensor is not None
    np.testing.assert_array_equal(tensor.numpy(), np.concatenate([WEIGHTS["a"], array.T], axis=1))
    assert reads == [1]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("u = MatMul(x, a)\n v = MatMul(z, b)\n p = Relu(u)\n q = Relu(v)", "u reads x, v reads z: not the same input"),
        (
            "u0 = MatMul(x, a)\n u = Add(u0, a_bias)\n v = MatMul(x, b)\n p = Relu(u)\n q = Relu(v)",
            "one of u and v has a bias, the other has none",
        ),
        ("u = Relu(x)\n v = MatMul(x, b)\n p = Relu(u)\n q = Relu(v)", "u: u comes from Relu, not from a MatMul"),
        (
            "both = MatMul(x, a)\n u, v = Split <axis = -1, num_outputs = 2> (both)\n p = Relu(u)\n q = Relu(v)",
            "u, v are parts of one projection already: both",
        ),
    ],
)
def test_what_must_stay_apart_says_why(body: str, reason: str) -> None:
    assert mergeable_linears(model_of(body)[1]) == reason


def test_weights_of_two_types_stay_apart() -> None:
    model, values = model_of("u = MatMul(x, a)\n v = MatMul(x, b)\n p = Relu(u)\n q = Relu(v)")
    half = WEIGHTS["b"].astype(np.float16)
    model.graph.initializers["b"].const_value = ir.Tensor(half, name="b")
    assert mergeable_linears(values) == "a is FLOAT, b is FLOAT16"
