"""The embedding table in 16 bits: half the memory, and half the bytes read for each token.

In: a Gather of rows of a float32 table. Out: the same of a 16-bit table, and a Cast of the few rows taken. With fp32
weights the table stays as well, unless the recipe says otherwise: that graph is the exact one.
"""

from dataclasses import dataclass

import onnx_ir as ir

from .base import Fusion, run_fusion
from .number_formats import FORMATS
from .stored_weights import small_copy
from .target import Target
from .weights import constant_of, value_like

__all__ = ["store_embedding"]


@dataclass(frozen=True)
class Lookup:
    """A Gather of rows of a constant table."""

    gather: ir.Node
    table: ir.Value
    dtype: ir.DataType


def store_embedding(model: ir.Model, target: Target) -> int:
    """Round float32 tables that rows are looked up in to the target's format for them; returns how many lookups.

    before:  Gather(table, ids, axis=0)
    after:   Cast(Gather(table/bfloat16, ids, axis=0), to=FLOAT)

    Rounding is to nearest, ties to even; a checkpoint in bfloat16 loses nothing. A tied head in the same format reads
    the same table.
    Kept untouched: fp32 embeddings; tables that are computed, or not float32 with two axes; other axes.
    Source: https://onnx.ai/onnx/operators/onnx__Gather.html
    """
    return run_fusion(model, target, Fusion(_pattern, _check, _rewrite))


def _pattern(node: ir.Node) -> ir.Node | None:
    if node.domain != "" or node.op_type != "Gather" or node.attributes.get_int("axis", 0) != 0:
        return None
    tensor = constant_of(node.inputs[0])
    return node if tensor is not None and tensor.dtype == ir.DataType.FLOAT and len(tensor.shape) == 2 else None


def _check(gather: ir.Node, target: Target) -> Lookup | str:
    table = gather.inputs[0]
    assert table is not None
    dtype = FORMATS[target.embedding_format].weight
    if dtype == ir.DataType.FLOAT:
        return f"the target keeps {table.name} in fp32"
    return Lookup(gather, table, dtype)


def _rewrite(graph: ir.Graph, lookup: Lookup) -> None:
    old = lookup.gather.outputs[0]
    table = small_copy(graph, lookup.table, lookup.dtype)
    rows = ir.Value(name=f"{old.name}/rows", type=ir.TensorType(lookup.dtype), shape=old.shape)
    gather = ir.node("Gather", [table, lookup.gather.inputs[1]], {"axis": 0}, outputs=[rows])
    new = value_like(old, str(old.name))
    cast = ir.node("Cast", [rows], {"to": ir.DataType.FLOAT.value}, outputs=[new])
    graph.insert_before(lookup.gather, [gather, cast])
    old.replace_all_uses_with(new, replace_graph_outputs=True)
