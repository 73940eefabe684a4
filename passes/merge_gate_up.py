"""The two projections of a gated feed-forward layer, made one MatMul.

In: `act(x @ gate) * (x @ up)`. Out: one wide linear layer and a Split, gate first. As for q, k and v, the edges of the
graph tell which two belong together, not the names. What act is does not matter here (SiLU, GELU): fuse_swiglu asks.
"""

import onnx_ir as ir

from .base import Fusion, run_fusion
from .linears import Linear, merge_linears, mergeable_linears
from .target import Target

__all__ = ["merge_gate_up", "silu_argument"]


def merge_gate_up(model: ir.Model, target: Target) -> int:
    """Merge the gate and up projections of every gated feed-forward layer; returns how many.

    before:  Mul(act(MatMul(x, wg) [+ bg]), MatMul(x, wu) [+ bu])
    after:   g, u = Split(MatMul(x, wg|wu) [+ bg|bu], axis=-1);  Mul(act(g), u)

    act is Gelu, Relu, or Mul(g, Sigmoid(g)). The merged weight is computed when it is read.
    Kept untouched: projections of different inputs; one with and one without bias; already merged ones; other products.
    Source: Shazeer 2020, "GLU Variants Improve Transformer", equation 6.
    """
    return run_fusion(model, target, Fusion(_pattern, _check, merge_linears))


def _pattern(node: ir.Node) -> dict[str, ir.Value] | None:
    if node.domain != "" or node.op_type != "Mul":
        return None
    for activated, up in (node.inputs, node.inputs[::-1]):
        gate = _activation_argument(activated)
        if gate is not None and up is not None and gate is not up:
            return {"gate": gate, "up": up}
    return None


def _activation_argument(value: ir.Value | None) -> ir.Value | None:
    """g where `value` is act(g), else None."""
    node = value.producer() if value is not None else None
    if node is not None and node.domain == "" and node.op_type in ("Gelu", "Relu"):
        return node.inputs[0]
    return silu_argument(value)


def silu_argument(value: ir.Value | None) -> ir.Value | None:
    """g where `value` is Mul(g, Sigmoid(g)), in either order, else None."""
    node = value.producer() if value is not None else None
    if node is None or node.domain != "" or node.op_type != "Mul":
        return None
    for plain, squashed in (node.inputs, node.inputs[::-1]):
        sigmoid = squashed.producer() if squashed is not None else None
        if sigmoid is not None and sigmoid.op_type == "Sigmoid" and sigmoid.inputs[0] is plain:
            return plain
    return None


def _check(values: dict[str, ir.Value], target: Target) -> list[Linear] | str:
    del target  # one wide product is no slower anywhere
    return mergeable_linears(values)
