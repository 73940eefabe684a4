"""The embedding table in 16 bits: half the memory, and half the bytes read for each token.

In: a Gather of rows of a float32 table. Out: the same of a bfloat16 table, and a Cast of the few rows taken. Only where
the linear layers are rounded as well: with fp32 weights the graph stays exact.
"""

from dataclasses import dataclass

import ml_dtypes
import onnx_ir as ir

from .base import Fusion, run_fusion
from .target import Target
from .weights import constant_of, derive_sliced, read_slice, registered, value_like

__all__ = ["store_embedding_bf16"]


@dataclass(frozen=True)
class Lookup:
    """A Gather of rows of a constant table."""

    gather: ir.Node
    table: ir.Value


def store_embedding_bf16(model: ir.Model, target: Target) -> int:
    """Round float32 tables that rows are looked up in to bfloat16; returns how many lookups.

    before:  Gather(table, ids, axis=0)
    after:   Cast(Gather(table/bf16, ids, axis=0), to=FLOAT)

    Rounding is to nearest, ties to even; a checkpoint in bfloat16 loses nothing.
    Kept untouched: a target with fp32 weights; tables that are computed, or not float32 with two axes; other axes.
    Source: https://onnx.ai/onnx/operators/onnx__Gather.html
    """
    return run_fusion(model, target, Fusion(_pattern, _check, _rewrite))


def _pattern(node: ir.Node) -> Lookup | None:
    if node.domain != "" or node.op_type != "Gather" or node.attributes.get_int("axis", 0) != 0:
        return None
    table = node.inputs[0]
    tensor = constant_of(table)
    if table is None or tensor is None or tensor.dtype != ir.DataType.FLOAT or len(tensor.shape) != 2:
        return None
    return Lookup(node, table)


def _check(lookup: Lookup, target: Target) -> Lookup | str:
    if target.weights == "fp32":
        return f"the target keeps {lookup.table.name} in fp32"
    return lookup


def _rewrite(graph: ir.Graph, lookup: Lookup) -> None:
    table, old = lookup.table, lookup.gather.outputs[0]
    name = f"{table.name}/bf16"
    tensor = constant_of(table)
    assert tensor is not None
    shape = tuple(int(size) for size in tensor.shape.numpy())
    rounded = derive_sliced(
        name,
        ir.DataType.BFLOAT16,
        shape,
        lambda start, stop: read_slice(table, 0, start, stop).astype(ml_dtypes.bfloat16),
    )
    rows = ir.Value(name=f"{old.name}/bf16", type=ir.TensorType(ir.DataType.BFLOAT16), shape=old.shape)
    gather = ir.node("Gather", [registered(graph, rounded), lookup.gather.inputs[1]], {"axis": 0}, outputs=[rows])
    new = value_like(old, str(old.name))
    cast = ir.node("Cast", [rows], {"to": ir.DataType.FLOAT.value}, outputs=[new])
    graph.insert_before(lookup.gather, [gather, cast])
    old.replace_all_uses_with(new, replace_graph_outputs=True)
