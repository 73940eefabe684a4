"""The two projections of a gated feed-forward layer, made one MatMul.

In: `act(x @ gate) * (x @ up)`. Out: one wide linear layer and a Split, gate first. As for q, k and v, the edges of the
graph tell which two belong together, not the names. What act is does not matter here (SiLU, GELU): fuse_swiglu asks.
"""

from dataclasses import dataclass

import onnx_ir as ir

from .base import Fusion, run_fusion
from .linears import Linear
from .merge_linears import merge_linears, mergeable_linears
from .target import Target

__all__ = ["Gated", "gated_product", "merge_gate_up"]


@dataclass(frozen=True)
class Gated:
    """`product = activation(gate) * up`; `activation` is SiLU, Gelu or Relu."""

    product: ir.Node
    gate: ir.Value
    up: ir.Value
    activation: str


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
    gated = gated_product(node)
    return None if gated is None else {"gate": gated.gate, "up": gated.up}


def _check(values: dict[str, ir.Value], target: Target) -> list[Linear] | str:
    del target  # one wide product is no slower anywhere
    return mergeable_linears(values)


def gated_product(node: ir.Node) -> Gated | None:
    """What `node` multiplies, if it is the Mul of a gated layer; of two activated operands the first is the gate."""
    if node.domain != "" or node.op_type != "Mul" or _silu_argument(node) is not None:
        return None
    for activated, up in (node.inputs, node.inputs[::-1]):
        maker = activated.producer() if activated is not None else None
        if up is None or maker is None or maker.domain != "":
            continue
        gate = maker.inputs[0] if maker.op_type in ("Gelu", "Relu") else _silu_argument(maker)
        if gate is not None and gate is not up:
            return Gated(node, gate, up, "SiLU" if maker.op_type == "Mul" else maker.op_type)
    return None


def _silu_argument(node: ir.Node) -> ir.Value | None:
    """g where `node` is Mul(g, Sigmoid(g)), in either order, else None."""
    if node.op_type != "Mul":
        return None
    for plain, squashed in (node.inputs, node.inputs[::-1]):
        sigmoid = squashed.producer() if squashed is not None else None
        if sigmoid is not None and sigmoid.op_type == "Sigmoid" and sigmoid.inputs[0] is plain:
            return plain
    return None
