"""Attention reads queries, keys and values where their projection wrote them: no Split copies them apart.

In: a lowered graph with `PagedAttention(q, k, v, ...)` whose q, k, v are the three parts of one tensor. Out: the op on
that tensor, k and v left out. On the portable graph this lost: other targets' attention wants three tensors.
"""

from dataclasses import dataclass

import onnx_ir as ir

from ..plugins.contract import DOMAIN
from ..plugins.paged_attention.schema import PAGED_ATTENTION
from .base import Fusion, run_fusion
from .target import Target
from .weights import small_constant

__all__ = ["pack_attention_inputs"]


@dataclass(frozen=True)
class Plan:
    """The attention, and the Split whose parts it reads."""

    attention: ir.Node
    split: ir.Node


def pack_attention_inputs(model: ir.Model, target: Target) -> int:
    """Let every PagedAttention read q, k and v side by side in one tensor; returns how many did not before.

    before:  q, k, v = Split(qkv, axis=-1);  PagedAttention(q, k, v, ...)
    after:   PagedAttention(qkv, , , ...)

    Kept untouched: attention whose q, k, v come from several tensors (qk-norm), from parts of another size or order, or
    are read by somebody else too.
    Source: plugins/paged_attention/schema.py for the op.
    """
    return run_fusion(model, target, Fusion(_pattern, _check, _rewrite))


def _pattern(node: ir.Node) -> Plan | None:
    if node.domain != DOMAIN or node.op_type != PAGED_ATTENTION or node.inputs[0] is None or node.inputs[1] is None:
        return None
    split = node.inputs[0].producer()
    if split is None or split.domain != "" or split.op_type != "Split":
        return None
    return Plan(node, split)


def _check(found: Plan, target: Target) -> Plan | str:
    del target  # every target that lowers PagedAttention to our kernels has this form
    parts = list(found.split.outputs)
    if list(found.attention.inputs[:3]) != parts:
        return f"q, k and v are not the three parts of {found.split.inputs[0].name}"  # type: ignore[union-attr]
    shared = [part.name for part in parts if len(part.uses()) != 1 or part.is_graph_output()]
    if shared:
        return f"{', '.join(map(str, shared))} has other readers than the attention"
    attributes = found.attention.attributes
    heads, kv_heads, dim = (attributes.get_int(name) for name in ("heads", "kv_heads", "head_dim"))
    sizes = small_constant(found.split.inputs[1]) if len(found.split.inputs) > 1 else None
    wanted = [heads * dim, kv_heads * dim, kv_heads * dim]
    if sizes is None or sizes.tolist() != wanted:
        return f"the parts are {None if sizes is None else sizes.tolist()} wide, not {wanted}"
    return found


def _rewrite(graph: ir.Graph, plan: Plan) -> None:
    del graph
    plan.attention.replace_input_with(0, plan.split.inputs[0])
    plan.attention.replace_input_with(1, None)
    plan.attention.replace_input_with(2, None)
