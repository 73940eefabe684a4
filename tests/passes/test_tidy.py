"""tidy: the library passes fold, lift, remove and count, and never read a weight matrix."""

import numpy as np
import onnx_ir as ir
import pytest
from graph_text import graph, listing, weights
from pass_case import assert_same_numbers, check_rewrite

from paceline.passes.base import run_passes
from paceline.passes.target import Target
from paceline.passes.tidy import clear_notes, fold_constants, lift_constants, remove_dead_code, remove_no_ops

CONSTANTS = {
    "one": np.float32(1.0),
    "zero": np.float32(0.0),
    "two": np.float32(2.0),
    "tiny": np.float32(1e-8),  # the epsilon of a norm
    "nearly_1": np.float32(1.000001),
    "start": [0],
    "end": [2**63 - 1],
    "middle": [2],
    "axes": [1],
    "step": [1],
}


def used(text: str) -> dict[str, np.ndarray | list[int]]:
    return {name: array for name, array in CONSTANTS.items() if name in text.replace("(", " ").replace(",", " ")}


def test_small_constants_are_folded() -> None:
    model = check_rewrite(
        fold_constants,
        "(float[T,4] x) => (float[T,4] y) { one = Constant<value = float[1] {1.0}>()  s = Add(w, one)  y = Mul(x, s) }",
        "y = Mul(x, s)",
        weights(w=[4]),
        count=2,
    )
    assert "w" not in model.graph.initializers


def test_a_weight_matrix_is_neither_read_nor_transposed() -> None:
    """The old bug: folding transposed every weight, so that the whole model was in memory, under another name."""

    def explode() -> ir.TensorProtocol:
        raise AssertionError("folding read a weight")

    text = "(float[T,40] x) => (float[T,30] y) { t = Transpose<perm = [1, 0]>(w)  y = MatMul(x, t) }"
    model = graph(text, **weights(w=[30, 40]))
    lazy = ir.LazyTensor(explode, dtype=ir.DataType.FLOAT, shape=ir.Shape([30, 40]), name="w")
    model.graph.initializers["w"].const_value = lazy
    assert run_passes(model, Target(), (fold_constants,))[0].count == 0
    assert listing(model) == "t = Transpose(w, perm=[1, 0])\ny = MatMul(x, t)"


@pytest.mark.parametrize(
    "nothing",
    [
        "Mul(x, one)",
        "Div(x, one)",
        "Add(x, zero)",
        "Sub(x, zero)",
        "Cast<to = 1>(x)",
        "Identity(x)",
        "Slice(x, start, end, axes, step)",
    ],
)
def test_what_changes_nothing_is_removed(nothing: str) -> None:
    text = f"(float[T,4] x) => (float[T,4] y) {{ a = {nothing}  y = Relu(a) }}"
    check_rewrite(remove_no_ops, text, "y = Relu(x)", used(text))


@pytest.mark.parametrize(
    ("something", "line"),
    [
        ("Mul(x, two)", "Mul(x, two)"),
        ("Add(x, one)", "Add(x, one)"),
        ("Add(x, tiny)", "Add(x, tiny)"),
        ("Mul(x, nearly_1)", "Mul(x, nearly_1)"),
        ("Slice(x, start, middle, axes, step)", "Slice(x, [0], [2], [1], [1])"),
    ],
)
def test_what_does_change_something_is_kept(something: str, line: str) -> None:
    text = f"(float[T,4] x) => (float[T,N] y) {{ a = {something}  y = Relu(a) }}"
    model = graph(text, **used(text))
    assert run_passes(model, Target(), (remove_no_ops,))[0].count == 0
    assert listing(model) == f"a = {line}\ny = Relu(a)"


def test_a_computed_shape_with_one_unknown_axis_becomes_constant() -> None:
    text = """(float[T,8] x) => (float[T,2,4] y) {
        rows = Shape<start = 0, end = 1>(x)
        shape = Concat<axis = 0>(rows, tail)
        y = Reshape(x, shape)
    }"""
    model = graph(text, tail=[2, 4])
    assert [report.count for report in run_passes(model, Target(), (remove_no_ops, lift_constants))] == [1, 1]
    assert listing(model) == "y = Reshape(x, [-1, 2, 4], allowzero=1)"
    assert run_passes(model, Target(), (remove_no_ops,))[0].count == 0
    assert_same_numbers(graph(text, tail=[2, 4]), model)


def test_constant_nodes_become_initializers() -> None:
    text = "(float[T,4] x) => (float[T,4] y) { c = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>()  y = Mul(x, c) }"
    model = check_rewrite(lift_constants, text, "y = Mul(x, c)", {})
    assert list(model.graph.initializers) == ["c"]


def test_dead_code_is_counted_and_removed() -> None:
    text = "(float[T,4] x) => (float[T,4] y) { a = Neg(x)  b = Relu(a)  y = Relu(x) }"
    check_rewrite(remove_dead_code, text, "y = Relu(x)", {}, count=2)


def test_notes_of_exporters_are_dropped() -> None:
    model = graph("(float[T,4] x) => (float[T,4] y) { a = Neg(x)  y = Relu(a) }")
    node = model.graph.node(0)
    node.metadata_props["pkg.torch.onnx.stack_trace"] = "File model.py, line 3"
    node.outputs[0].doc_string = "a"
    model.graph.doc_string = "g"
    assert run_passes(model, Target(), (clear_notes,))[0].count == 3
    assert run_passes(model, Target(), (clear_notes,))[0].count == 0
    assert "model.py" not in str(ir.to_proto(model))
