"""A product with its bias as two operators, as every other linear layer of a graph has it.

In: Gemm, which exporters write where a model flattens its rows first. Out: MatMul and Add, so that all that knows
linear layers (merging, quantizing, lowering) sees one form. Teaching Gemm to each of them was the alternative and lost.
"""

import onnx_ir as ir

from .base import Fusion, run_fusion
from .target import Target
from .weights import constant_of, value_like

__all__ = ["split_gemm"]


def split_gemm(model: ir.Model, target: Target) -> int:
    """Replace every Gemm with a constant matrix by MatMul and Add; returns how many.

    before:  Gemm(x, W [, b], transB=0 or 1)
    after:   MatMul(x, W or Transpose(W)) [+ b]

    Kept untouched: a Gemm that scales (alpha, beta) or transposes its rows; products of two computed values.
    Source: https://onnx.ai/onnx/operators/onnx__Gemm.html
    """
    return run_fusion(model, target, Fusion(_pattern, _check, _rewrite))


def _pattern(node: ir.Node) -> ir.Node | None:
    return node if node.domain == "" and node.op_type == "Gemm" else None


def _check(gemm: ir.Node, target: Target) -> ir.Node | str:
    del target  # one form of a linear layer for all
    if constant_of(gemm.inputs[1]) is None:
        return f"the matrix of {gemm.outputs[0].name} is computed"
    scales = [gemm.attributes.get_float(name, 1.0) for name in ("alpha", "beta")]
    if scales != [1.0, 1.0] or gemm.attributes.get_int("transA", 0) != 0:
        return f"{gemm.outputs[0].name} scales by {scales} or transposes its rows"
    return gemm


def _rewrite(graph: ir.Graph, gemm: ir.Node) -> None:
    rows, matrix = gemm.inputs[:2]
    bias = gemm.inputs[2] if len(gemm.inputs) > 2 else None
    old = gemm.outputs[0]
    assert matrix is not None
    if gemm.attributes.get_int("transB", 0) != 0:
        matrix = _transposed(graph, gemm, matrix)
    product = value_like(old, f"{old.name}/product")
    graph.insert_before(gemm, ir.node("MatMul", [rows, matrix], outputs=[product]))
    if bias is not None:
        total = value_like(old, f"{old.name}/total")
        graph.insert_before(gemm, ir.node("Add", [product, bias], outputs=[total]))
        product = total
    if old.is_graph_output():
        name, old.name = old.name, f"{old.name}/gemm"
        product.name = name
    old.replace_all_uses_with(product, replace_graph_outputs=True)


def _transposed(graph: ir.Graph, gemm: ir.Node, matrix: ir.Value) -> ir.Value:
    shape = None if matrix.shape is None else ir.Shape(list(matrix.shape)[::-1])
    output = ir.Value(name=f"{matrix.name}/transposed", type=matrix.type, shape=shape)
    graph.insert_before(gemm, ir.node("Transpose", [matrix], {"perm": [1, 0]}, outputs=[output]))
    return output
