"""trace_rows: which inputs hold a node's rows, and which operators mix them."""

import re

import onnx_ir as ir
import pytest
from graph_text import graph, weights

from paceline.passes.trace_rows import row_inputs

APART = [  # body, axis of the rows in the output, expected (place, axis)
    ("y = Add(x, z)", 1, ((0, 1), (1, 1))),
    ("y = Mul(x, w)", 1, ((0, 1),)),
    ("y = MatMul(x, m)", 1, ((0, 1),)),
    ("t = Transpose<perm = [1, 0]>(m)  y = MatMul(x, t)", 1, ((0, 1),)),
    ("y = Softmax<axis = -1>(x)", 1, ((0, 1),)),
    ("y = RMSNormalization<axis = -1>(x, w)", 1, ((0, 1),)),
    ("y = ReduceMean<keepdims = 1>(x, last)", 1, ((0, 1),)),
    ("y = Concat<axis = 2>(x, z)", 1, ((0, 1), (1, 1))),
    ("y = Slice(x, zero, two, last)", 1, ((0, 1),)),
    ("y = Transpose<perm = [1, 0, 2]>(x)", 0, ((0, 1),)),
    ("y = Squeeze(x, zero)", 0, ((0, 1),)),
    ("y = Unsqueeze(x, zero)", 2, ((0, 1),)),
    ("y = Reshape(x, heads)", 1, ((0, 1),)),
    ("y, rest = Split<axis = -1, num_outputs = 2>(x)", 1, ((0, 1),)),
    ("y = Expand(x, wide)", 2, ((0, 1),)),
    ("a = Squeeze(x, zero)  y = Gemm(a, m, w)", 0, ((0, 0),)),
    ("y = paceline.SwiGLU(x)", 1, ((0, 1),)),
    ("y = Floor(x)", 1, ((0, 1),)),
    ("y = Gather<axis = 2>(x, scalar)", 1, ((0, 1),)),
    ("y = Gather<axis = 0>(x, scalar)", 0, ((0, 1),)),
    ("y = Gather<axis = 2>(x, two)", 1, ((0, 1),)),
]
MIXED = [
    ("y = MatMul(x, m)", 2),
    ("y = MatMul(z, x)", 2),  # the columns of the right factor: each row of y reads all rows of it
    ("t = Transpose<perm = [0, 2, 1]>(x)  y = MatMul(z, t)", 1),  # scores of attention
    ("y = Softmax<axis = 1>(x)", 1),
    ("y = ReduceMean<keepdims = 1>(x, one)", 1),
    ("y = CumSum(x, axis)", 1),
    ("y = Concat<axis = 1>(x, z)", 1),
    ("y = Slice(x, zero, two, one)", 1),
    ("y = Reshape(x, flat)", 0),
    ("y = Conv(x, kernel)", 1),
    ("a = Squeeze(x, zero)  y = Gemm<transA = 1>(a, a)", 0),
    ("y = Expand(w, wide)", 2),
    ("y = Gather<axis = 1>(x, two)", 1),
]
CONSTANTS = {
    **weights(w=[4], m=[4, 4], kernel=[4, 4, 1]),
    "zero": [0],
    "one": [1],
    "two": [2],
    "scalar": 0,
    "last": [2],
    "axis": 1,
    "heads": [1, -1, 2, 2],
    "flat": [-1],
    "wide": [3, 1, 1, 4],
}


def rows_of(body: str, axis: int) -> tuple[tuple[int, int], ...] | None:
    used = {name: array for name, array in CONSTANTS.items() if re.search(rf"[(,] ?{name}\b", body)}
    model = graph(f"(float[1,T,4] x, float[1,T,4] z) => (y) {{ {body} }}", **used)
    node = next(node for node in model.graph if node.outputs[0].name == "y")
    if node.op_type == "Reshape" and "heads" in body:
        node.outputs[0].shape = ir.Shape([1, "T", 2, 2])  # what inference cannot know behind a -1
    if node.outputs[0].shape is None:
        node.outputs[0].shape = model.graph.inputs[0].shape
    return row_inputs(node, axis)


@pytest.mark.parametrize(("body", "axis", "expected"), APART)
def test_rows_that_stay_apart(body: str, axis: int, expected: tuple[tuple[int, int], ...]) -> None:
    assert rows_of(body, axis) == expected


@pytest.mark.parametrize(("body", "axis"), MIXED)
def test_rows_that_mix(body: str, axis: int) -> None:
    assert rows_of(body, axis) is None
