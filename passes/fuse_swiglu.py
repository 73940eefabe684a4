"""The gate of a feed-forward layer as one op: three passes over [T, 2I] numbers become one.

In: `silu(gate) * up` over the two halves of one projection, as merge_gate_up leaves it or as the checkpoint stores it.
Out: `paceline::SwiGLU` on the whole projection; the Split goes too. Fusing over two separate projections was the
alternative and lost: it keeps two narrow MatMuls alive.
"""

from dataclasses import dataclass

import onnx_ir as ir

from ..plugins.contract import DOMAIN
from .base import Fusion, run_fusion
from .merge_gate_up import Gated, gated_product
from .target import Target
from .weights import small_constant, value_like

__all__ = ["fuse_swiglu"]


@dataclass(frozen=True)
class Plan:
    """The Mul to replace, and the projection whose halves it multiplies."""

    product: ir.Node
    gate_up: ir.Value


def fuse_swiglu(model: ir.Model, target: Target) -> int:
    """Replace the gate of every SwiGLU layer by one op; returns how many.

    before:  g, u = Split(gate_up, axis=-1);  Mul(Mul(g, Sigmoid(g)), u)      (operands of both Muls in any order)
    after:   SwiGLU(gate_up)

    Kept untouched: gates other than SiLU; halves of two projections, or of unequal size; up before gate.
    Source: Shazeer 2020, "GLU Variants Improve Transformer", equation 6; plugins/swiglu for the op.
    """
    return run_fusion(model, target, Fusion(gated_product, _check, _rewrite))


def _check(gated: Gated, target: Target) -> Plan | str:
    del target  # every target has a kernel or runs the meaning
    if gated.activation != "SiLU":
        return f"the gate {gated.gate.name} goes through {gated.activation}, not SiLU"
    if gated.product.outputs[0].is_graph_output():
        return "the result is a graph output"
    split = gated.gate.producer()
    if split is None or split.domain != "" or split.op_type != "Split" or gated.up.producer() is not split:
        return f"{gated.gate.name} and {gated.up.name} are not the two halves of one projection"
    if list(split.outputs) != [gated.gate, gated.up]:
        return f"{gated.gate.name} is not the first and {gated.up.name} the second of two parts"
    sizes = small_constant(split.inputs[1]) if len(split.inputs) > 1 else None
    if sizes is not None and sizes[0] != sizes[1]:
        return f"the parts have unequal sizes {sizes.tolist()}"
    gate_up = split.inputs[0]
    assert gate_up is not None
    rank = len(gate_up.shape) if gate_up.shape is not None else None
    axis = split.attributes.get_int("axis", 0)
    if axis not in (-1, rank - 1 if rank is not None else -1):
        return f"{gate_up.name} is split along axis {axis}, not along the last one"
    return Plan(gated.product, gate_up)


def _rewrite(graph: ir.Graph, plan: Plan) -> None:
    old = plan.product.outputs[0]
    new = value_like(old, str(old.name))
    graph.insert_before(plan.product, ir.node("SwiGLU", [plan.gate_up], domain=DOMAIN, outputs=[new]))
    old.replace_all_uses_with(new)
