"""Weights as MatMul reads them, [in, out]: the Transpose that torch's layout asks for is done when they are written.

In: MatMul(x, Transpose(W)) with constant W [out, in]. Out: MatMul(x, W'), and no Transpose is left to the engine, which
would hold both copies while it folds them. Transposing in the exporter was the alternative and lost: it reads weights.
"""

from dataclasses import dataclass

import onnx_ir as ir

from .base import Fusion, run_fusion
from .linears import is_matrix_transpose
from .target import Target
from .weights import constant_of, derive_sliced, read_slice, registered

__all__ = ["transpose_weights"]


@dataclass(frozen=True)
class Match:
    """A Transpose of a constant matrix."""

    node: ir.Node
    weight: ir.Value


def transpose_weights(model: ir.Model, target: Target) -> int:
    """Replace transposed constant matrices by constants that are computed when they are read; returns how many.

    before:  MatMul(x, Transpose(W))      W: initializer [out, in]
    after:   MatMul(x, W/transposed)      W/transposed: initializer [in, out]

    Kept untouched: a matrix with other users (a tied embedding table would be stored twice); graph outputs.
    Source: https://onnx.ai/onnx/operators/onnx__Transpose.html
    """
    return run_fusion(model, target, Fusion(_pattern, _check, _rewrite))


def _pattern(node: ir.Node) -> Match | None:
    weight = node.inputs[0] if node.inputs else None
    tensor = constant_of(weight)
    if weight is None or tensor is None or len(tensor.shape) != 2 or not is_matrix_transpose(node):
        return None
    return Match(node, weight)


def _check(match: Match, target: Target) -> Match | str:
    del target  # every engine would have to transpose it
    if len(match.weight.uses()) > 1:
        return f"{match.weight.name} has other users: a transposed copy would store it twice"
    return "the result is a graph output" if match.node.outputs[0].is_graph_output() else match


def _rewrite(graph: ir.Graph, match: Match) -> None:
    weight = match.weight
    tensor = constant_of(weight)
    assert tensor is not None
    rows, columns = (int(size) for size in tensor.shape.numpy())
    name = f"{weight.name}/transposed"
    transposed = derive_sliced(
        name, tensor.dtype, (columns, rows), lambda start, stop: read_slice(weight, 0, start, stop).T, axis=1
    )
    match.node.outputs[0].replace_all_uses_with(registered(graph, transposed))
