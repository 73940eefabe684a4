"""From one sequence to many: attention over the rows of one sequence becomes attention over pages.

In: `paceline::Attention` nodes, for which all rows are one sequence that starts at position 0. Out: one
`paceline::PagedAttention` a layer, with the page table and the boundaries of the requests as inputs they all share,
and each layer's page pool as an input and an output that the runtime binds to one buffer. Up to here a graph can be
compared with the model it came from row by row; that is why export does not emit the paged form at once.
"""

from dataclasses import dataclass

import onnx_ir as ir

from ..plugins import contract
from .base import Fusion, run_fusion
from .target import Target

__all__ = ["insert_paged_attention"]

NUM_PLAIN_INPUTS = 3  # q, k, v; behind them the optional cos_sin and sinks
CACHE_TYPES = {
    "bfloat16": ir.DataType.BFLOAT16,
    "float16": ir.DataType.FLOAT16,
    "float32": ir.DataType.FLOAT,
}
STEP_INPUTS = (  # what every layer shares, in the operator's order; shapes with their axes' names
    (contract.PAGE_TABLE, ("B", "max_pages")),
    (contract.QUERY_START, ("B+1",)),
    (contract.CONTEXT_LEN, ("B",)),
)


@dataclass(frozen=True)
class Plan:
    """One attention node and what the target decides about its pool."""

    attention: ir.Node
    layer: int
    page_size: int
    pool_type: ir.TensorType
    pool_shape: ir.Shape


def insert_paged_attention(model: ir.Model, target: Target) -> int:
    """Replace every Attention by PagedAttention; returns how many.

    before:  out = Attention(q, k, v, cos_sin?, sinks?)
    after:   out, kv_pages_out.i = PagedAttention(q, k, v, kv_pages.i, page_table, query_start, context_len,
                                                  cos_sin?, sinks?, page_size=)

    Kept untouched: attention without a layer, and a second one of the same layer: they would have no pool.
    """
    return run_fusion(model, target, Fusion(_pattern, _check, _rewrite))


def _pattern(node: ir.Node) -> ir.Node | None:
    return node if node.domain == contract.DOMAIN and node.op_type == "Attention" else None


def _check(attention: ir.Node, target: Target) -> Plan | str:
    layer = attention.attributes.get_int("layer", -1)
    if layer < 0:
        return "the attention does not say which layer it is"
    assert attention.graph is not None
    if any(value.name == contract.kv_pages_in(layer) for value in attention.graph.inputs):
        return f"layer {layer} has a pool already"
    kv_heads = attention.attributes.get_int("kv_heads")
    head_dim = attention.attributes.get_int("head_dim")
    return Plan(
        attention,
        layer,
        target.page_size,
        ir.TensorType(CACHE_TYPES[target.float_cache_dtype]),
        ir.Shape([2, "num_pages", kv_heads, target.page_size * head_dim]),
    )


def _rewrite(graph: ir.Graph, plan: Plan) -> None:
    step = [_step_input(graph, name, axes) for name, axes in STEP_INPUTS]
    pool = ir.Value(name=contract.kv_pages_in(plan.layer), type=plan.pool_type, shape=plan.pool_shape)
    graph.inputs.append(pool)
    old = plan.attention.outputs[0]
    out = ir.Value(name=old.name, type=old.type, shape=old.shape)
    pool_out = ir.Value(name=contract.kv_pages_out(plan.layer), type=plan.pool_type, shape=plan.pool_shape)
    inputs = plan.attention.inputs
    node = ir.node(
        "PagedAttention",
        [*inputs[:NUM_PLAIN_INPUTS], pool, *step, *inputs[NUM_PLAIN_INPUTS:]],
        {**plan.attention.attributes, "page_size": ir.AttrInt64("page_size", plan.page_size)},
        domain=contract.DOMAIN,
        outputs=[out, pool_out],
    )
    graph.insert_before(plan.attention, node)
    old.replace_all_uses_with(out, replace_graph_outputs=True)
    graph.outputs.append(pool_out)


def _step_input(graph: ir.Graph, name: str, axes: tuple[str, ...]) -> ir.Value:
    """The graph's int32 input called `name`; made when the first layer asks."""
    for value in graph.inputs:
        if value.name == name:
            return value
    value = ir.Value(name=name, type=ir.TensorType(ir.DataType.INT32), shape=ir.Shape(axes))
    graph.inputs.append(value)
    return value
