"""The gate of a feed-forward layer inside its projection: the [T, 2 I] numbers between the two never reach memory.

In: a lowered graph with `SwiGLU(LinearX(x, packed W))`. Out: `GatedLinearX(x, packed W)`, the same packed weight. Doing
this before lowering was the alternative and lost: other targets have no such op, and a reader of the portable graph
wants to see the SwiGLU.
"""

from dataclasses import dataclass

import onnx_ir as ir

from ..plugins.contract import DOMAIN
from ..plugins.linear.schema import FORMATS, OUT_FEATURES, PANEL_COLUMNS
from .base import Fusion, run_fusion
from .target import Target
from .weights import value_like

__all__ = ["fuse_gated_linear"]

GATED = {one.op_type: one.gated_op_type for one in FORMATS.values()}
SCALED = tuple(one.op_type for name, one in FORMATS.items() if name.startswith("int8"))


@dataclass(frozen=True)
class Plan:
    """The projection, and the SwiGLU that is its only reader."""

    linear: ir.Node
    swiglu: ir.Node


def fuse_gated_linear(model: ir.Model, target: Target) -> int:
    """Replace every projection that only a SwiGLU reads by one op; returns how many.

    before:  SwiGLU(LinearBf16(x, W))          (or LinearF32, LinearInt8, LinearInt8Rows16)
    after:   GatedLinearBf16(x, W)

    Kept untouched: projections with a bias or another reader; halves that are not whole panels of 16 columns.
    Source: plugins/linear/schema.py for the ops.
    """
    return run_fusion(model, target, Fusion(_pattern, _check, _rewrite))


def _pattern(node: ir.Node) -> Plan | None:
    if node.domain != DOMAIN or node.op_type != "SwiGLU" or node.inputs[0] is None:
        return None
    linear = node.inputs[0].producer()
    if linear is None or linear.domain != DOMAIN or linear.op_type not in GATED:
        return None
    return Plan(linear, node)


def _check(found: Plan, target: Target) -> Plan | str:
    del target  # every target that lowers to these ops has their gated forms
    product = found.linear.outputs[0]
    if len(product.uses()) != 1 or product.is_graph_output():
        return f"{product.name} has other readers than the SwiGLU"
    if len(found.linear.inputs) != len(_weights_of(found.linear)) + 1:
        return f"the projection {product.name} has a bias"
    columns = found.linear.attributes.get_int(OUT_FEATURES)
    if columns % (2 * PANEL_COLUMNS):
        return f"{columns} columns are not two halves of whole panels of {PANEL_COLUMNS}"
    return found


def _weights_of(linear: ir.Node) -> list[ir.Value | None]:
    """The packed matrix, and for int8 the scales of its columns."""
    return list(linear.inputs[1:3] if linear.op_type in SCALED else linear.inputs[1:2])


def _rewrite(graph: ir.Graph, plan: Plan) -> None:
    old = plan.swiglu.outputs[0]
    new = value_like(old, str(old.name))
    attributes = [ir.AttrInt64(name, value.as_int()) for name, value in plan.linear.attributes.items()]
    node = ir.Node(
        DOMAIN,
        GATED[plan.linear.op_type],
        [plan.linear.inputs[0], *_weights_of(plan.linear)],
        attributes,
        outputs=[new],
    )
    graph.insert_before(plan.swiglu, node)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
