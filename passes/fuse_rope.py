"""Rotary embeddings moved into the attention op, which then rotates q and k itself.

In: `paceline::Attention(q, k, v)` whose q and k come from RotaryEmbedding nodes. Out: the same op with a fourth input,
one [T, rotary_dim] table a distinct theta, shared by all layers that use it. Leaving RotaryEmbedding alone was the
alternative and lost: it wants [batch, heads, T, head_dim], so every layer would pay four Transposes, and a paged cache
stores keys after rotation, so the op needs the rotation inside anyway.
"""

from dataclasses import dataclass

import onnx_ir as ir

from ..plugins.contract import DOMAIN
from .base import Fusion, run_fusion
from .target import Target
from .weights import int64_constant, small_constant, value_like

__all__ = ["fuse_rope"]

ROWS_FIRST = [0, 2, 1, 3]  # [batch, heads, T, head_dim] -> [batch, T, heads, head_dim]
TABLE = 3  # the place of cos_sin among the inputs of Attention


@dataclass(frozen=True)
class Rotation:
    """One RotaryEmbedding between a projection and an attention input."""

    x: ir.Value  # before the rotation, [batch, heads, T, head_dim]
    cos: ir.Value  # [batch, T, rotary_dim / 2]
    sin: ir.Value
    rotary_dim: int
    interleaved: int
    transpose: ir.Node  # back to rows first
    reshape: ir.Node  # heads put side by side


@dataclass(frozen=True)
class Plan:
    """An attention node with the rotations of its q and its k: both by the same table."""

    attention: ir.Node
    q: Rotation
    k: Rotation


def fuse_rope(model: ir.Model, target: Target) -> int:
    """Give every Attention behind RotaryEmbeddings their table instead; returns how many.

    before:  Attention(Reshape(Transpose(RotaryEmbedding(q, cos, sin))), the same of k, v)
    after:   Attention(Reshape(Transpose(q)), the same of k, v, cos_sin, rotary_dim=r, interleaved=i)
             cos_sin = Reshape(Concat(cos, sin), [-1, r]), made once for all layers with this cos and sin

    Full and partial rotation, halves and pairs, a theta per layer: all of that is in the RotaryEmbedding node.
    Kept untouched: an Attention that has a table; a layer without rotary embedding; q and k rotated by different
    tables or widths; caches indexed by position_ids; heads that are not side by side in the attention input.
    Source: https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html; plugins/attention for the fused op.
    """
    return run_fusion(model, target, Fusion(_pattern, _check, _rewrite))


def _pattern(node: ir.Node) -> ir.Node | None:
    if node.domain != DOMAIN or node.op_type != "Attention":
        return None
    return None if len(node.inputs) > TABLE and node.inputs[TABLE] is not None else node


def _check(attention: ir.Node, target: Target) -> Plan | str:
    del target  # every kernel of the op rotates
    head_dim = attention.attributes.get_int("head_dim", 0)
    q = _rotation_before(attention, 0, attention.attributes.get_int("heads", 0), head_dim)
    k = _rotation_before(attention, 1, attention.attributes.get_int("kv_heads", 0), head_dim)
    if isinstance(q, str):
        return q
    if isinstance(k, str):
        return k
    if (q.cos, q.sin) != (k.cos, k.sin):
        tables = f"{q.cos.name} and {q.sin.name}, k by {k.cos.name} and {k.sin.name}"
        return f"q is rotated by {tables}: one table cannot serve both"
    if (q.rotary_dim, q.interleaved) != (k.rotary_dim, k.interleaved):
        return f"q rotates {q.rotary_dim} elements of a head, k {k.rotary_dim}, or one of them in pairs"
    return Plan(attention, q, k)


def _rotation_before(attention: ir.Node, index: int, heads: int, head_dim: int) -> Rotation | str:
    value = attention.inputs[index]
    name = "qk"[index]
    reshape = _producer(value, "Reshape")
    transpose = _producer(reshape.inputs[0], "Transpose") if reshape else None
    rotary = _producer(transpose.inputs[0], "RotaryEmbedding") if transpose else None
    if value is None or reshape is None or transpose is None or rotary is None:
        return f"{name} comes from no RotaryEmbedding: a layer without rotary embedding, or one in another form"
    shape = small_constant(reshape.inputs[1])
    if shape is None or shape[-1] != heads * head_dim or list(transpose.attributes.get_ints("perm", [])) != ROWS_FIRST:
        return f"{value.name} does not put {heads} heads of {head_dim} side by side"
    if len(rotary.inputs) > 3 and rotary.inputs[3] is not None:
        return f"{name}: RotaryEmbedding picks rows of its cache by position_ids {rotary.inputs[3].name}"
    x, cos, sin = rotary.inputs[:3]
    assert x is not None
    assert cos is not None
    assert sin is not None
    if x.shape is None or (x.shape[1], x.shape[-1]) != (heads, head_dim):
        return f"{x.name} has shape {x.shape}, not [.., {heads}, T, {head_dim}]"
    rotary_dim = rotary.attributes.get_int("rotary_embedding_dim", 0) or head_dim
    return Rotation(x, cos, sin, rotary_dim, rotary.attributes.get_int("interleaved", 0), transpose, reshape)


def _producer(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if node is not None and node.domain == "" and node.op_type == op_type else None


def _rewrite(graph: ir.Graph, plan: Plan) -> None:
    attention = plan.attention
    for index, rotation in enumerate((plan.q, plan.k)):
        attention.replace_input_with(index, _unrotated(graph, attention, rotation))
    if len(attention.inputs) <= TABLE:
        attention.resize_inputs(TABLE + 1)
    attention.replace_input_with(TABLE, _table(graph, attention, plan.q))
    attention.attributes["rotary_dim"] = ir.AttrInt64("rotary_dim", plan.q.rotary_dim)
    attention.attributes["interleaved"] = ir.AttrInt64("interleaved", plan.q.interleaved)


def _unrotated(graph: ir.Graph, attention: ir.Node, rotation: Rotation) -> ir.Value:
    """What reached the attention input, without the rotation in it."""
    name = rotation.x.name
    rows_first = value_like(rotation.transpose.outputs[0], f"{name}/rows_first")
    flat = value_like(rotation.reshape.outputs[0], f"{name}/flat")
    transpose = ir.node("Transpose", [rotation.x], {"perm": ROWS_FIRST}, outputs=[rows_first])
    reshape = ir.node("Reshape", [rows_first, rotation.reshape.inputs[1]], rotation.reshape.attributes, outputs=[flat])
    graph.insert_before(attention, [transpose, reshape])
    return flat


def _table(graph: ir.Graph, attention: ir.Node, rotation: Rotation) -> ir.Value:
    """cos_sin of this rotation: the one that an earlier layer has made, or a new one."""
    cos, sin = rotation.cos, rotation.sin
    for user, _ in cos.uses():
        if user.op_type == "Concat" and tuple(user.inputs) == (cos, sin):
            return user.outputs[0].consumers()[0].outputs[0]
    name = f"cos_sin/{cos.name}"
    type_ = ir.TensorType(ir.DataType.FLOAT)
    wide = None if cos.shape is None else ir.Shape([*cos.shape.dims[:-1], rotation.rotary_dim])
    both = ir.node("Concat", [cos, sin], {"axis": -1}, outputs=[ir.Value(name=name, type=type_, shape=wide)])
    table = ir.Value(name=f"{name}/rows", type=type_, shape=ir.Shape([None, rotation.rotary_dim]))
    rows = int64_constant(graph, [-1, rotation.rotary_dim])
    reshape = ir.node("Reshape", [both.outputs[0], rows], outputs=[table])
    graph.insert_before(attention, [both, reshape])
    return table
