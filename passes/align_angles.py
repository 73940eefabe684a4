"""Sines and cosines whose bits do not depend on how many rows share the step.

In: Cos and Sin of [T, width] angles. Out: the same over rows widened to whole vectors. onnxruntime computes elements in
vectors and the last few one by one, with another polynomial: where a row is no whole number of vectors, its angles
differ in the last bit with the rows around it. An operator of ours was the alternative and lost: it would be one more
kernel for a few microseconds a step.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from .base import Fusion, run_fusion
from .target import Target
from .weights import int64_constant, registered, value_like

__all__ = ["align_angles"]

VECTOR = 16  # float32 numbers in the widest register
OPERATORS = ("Cos", "Sin")


@dataclass(frozen=True)
class Plan:
    """One Cos or Sin and the size of its last axis."""

    node: ir.Node
    width: int


def align_angles(model: ir.Model, target: Target) -> int:
    """Pad the angles of every Cos and Sin to whole vectors and cut the result; returns how many.

    before:  Cos(angles [T, 4])
    after:   Slice(Cos(Pad(angles, to 16)), 0, 4)

    Kept untouched: rows that are whole vectors; rows of a size that is not known.
    Source: https://onnx.ai/onnx/operators/onnx__Pad.html
    """
    return run_fusion(model, target, Fusion(_pattern, _check, _rewrite))


def _pattern(node: ir.Node) -> Plan | None:
    angles = node.inputs[0] if node.inputs else None
    if node.domain != "" or node.op_type not in OPERATORS or angles is None or angles.shape is None:
        return None
    width = angles.shape[-1]
    return Plan(node, width) if isinstance(width, int) and width % VECTOR else None


def _check(plan: Plan, target: Target) -> Plan | str:
    del target  # only the CPU's pipeline has this pass
    return "the result is a graph output" if plan.node.outputs[0].is_graph_output() else plan


def _rewrite(graph: ir.Graph, plan: Plan) -> None:
    old = plan.node.outputs[0]
    widened = _widened(graph, plan)
    whole = value_like(old, f"{old.name}/whole", widened.shape[-1])  # type: ignore[index, arg-type]
    cut = value_like(old, f"{old.name}/cut")
    bounds = [int64_constant(graph, [number]) for number in (0, plan.width, -1)]
    nodes = [
        ir.node(plan.node.op_type, [widened], outputs=[whole]),
        ir.node("Slice", [whole, *bounds], outputs=[cut]),
    ]
    graph.insert_before(plan.node, nodes)
    old.replace_all_uses_with(cut)


def _widened(graph: ir.Graph, plan: Plan) -> ir.Value:
    """The angles with zeros behind each row; those that the other of Cos and Sin has already."""
    (angles,) = plan.node.inputs
    assert angles is not None
    for user in angles.consumers():
        if user.op_type == "Pad":
            return user.outputs[0]
    wide = -(-plan.width // VECTOR) * VECTOR
    widened = value_like(angles, f"{angles.name}/widened", wide)
    pads, last = int64_constant(graph, [0, wide - plan.width]), int64_constant(graph, [-1])
    graph.insert_before(plan.node, ir.node("Pad", [angles, pads, _zero(graph), last], outputs=[widened]))
    return widened


def _zero(graph: ir.Graph) -> ir.Value:
    tensor = ir.Tensor(np.zeros((), np.float32), name="float32[0]")
    value = ir.Value(name="float32[0]", shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
    return registered(graph, value)
