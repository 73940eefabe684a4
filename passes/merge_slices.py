"""Slices that cut a projection into neighbouring parts, made one Split.

In: a graph whose checkpoint stores q, k and v (or gate and up) as one matrix, and whose code cuts the result by hand.
Out: the same Split that merge_qkv and merge_gate_up write, so that later fusions see one form.
"""

from dataclasses import dataclass

import onnx_ir as ir

from .base import Fusion, run_fusion
from .target import Target
from .weights import int64_constant, small_constant, value_like

__all__ = ["Part", "merge_slices", "part_of"]


@dataclass(frozen=True)
class Part:
    """`node` cuts [start, end) out of the last axis."""

    node: ir.Node
    start: int
    end: int


@dataclass(frozen=True)
class Plan:
    """The parts of `source`, in order; together they are all of it."""

    source: ir.Value
    parts: tuple[Part, ...]


def merge_slices(model: ir.Model, target: Target) -> int:
    """Replace Slices that together cut up a last axis by one Split; returns the number of Splits.

    before:  a = Slice(x, 0, 4, axis=-1)   b = Slice(x, 4, 6, axis=-1)   c = Slice(x, 6, end, axis=-1)
    after:   a, b, c = Split(x, [4, 2, end - 6], axis=-1)

    Kept untouched: parts that overlap or leave a gap; a single Slice; steps other than 1; computed bounds; other axes.
    Source: https://onnx.ai/onnx/operators/onnx__Slice.html, https://onnx.ai/onnx/operators/onnx__Split.html
    """
    return run_fusion(model, target, Fusion(_pattern, _check, _rewrite))


def _pattern(node: ir.Node) -> Plan | None:
    first = part_of(node)
    source = node.inputs[0] if node.inputs else None
    if first is None or source is None or first.start != 0:
        return None
    found = (part_of(user) for user in source.consumers())
    parts = sorted((part for part in found if part is not None), key=lambda part: (part.start, part.end))
    return Plan(source, tuple(parts)) if len(parts) > 1 and parts[0].node is node else None


def part_of(node: ir.Node) -> Part | None:
    """What `node` cuts out, if it is a Slice along the last axis with step 1 and constant bounds."""
    if node.domain != "" or node.op_type != "Slice" or len(node.inputs) < 4 or node.inputs[0] is None:
        return None
    shape = node.inputs[0].shape
    numbers = [small_constant(value) for value in node.inputs[1:]]
    if shape is None or not isinstance(shape[-1], int) or any(n is None or n.size != 1 for n in numbers):
        return None
    start, end, axis, *step = (int(number.item()) for number in numbers if number is not None)
    if axis not in (-1, len(shape) - 1) or step not in ([], [1]) or start < 0 or end < 0:
        return None
    return Part(node, start, min(end, shape[-1]))


def _check(plan: Plan, target: Target) -> Plan | str:
    del target  # one node instead of several, anywhere
    assert plan.source.shape is not None
    bounds = [part.start for part in plan.parts] + [plan.source.shape[-1]]
    for part, wanted_end in zip(plan.parts, bounds[1:], strict=True):
        if part.end != wanted_end:
            return f"{part.node.outputs[0].name} ends at {part.end}, the next part starts at {wanted_end}"
        if part.node.outputs[0].is_graph_output():
            return f"{part.node.outputs[0].name} is a graph output"
    return plan


def _rewrite(graph: ir.Graph, plan: Plan) -> None:
    olds = [part.node.outputs[0] for part in plan.parts]
    news = [value_like(old, str(old.name)) for old in olds]
    sizes = int64_constant(graph, [part.end - part.start for part in plan.parts])
    first = next(node for node in graph if node in {part.node for part in plan.parts})
    graph.insert_before(first, ir.node("Split", [plan.source, sizes], {"axis": -1}, outputs=news))
    for old, new in zip(olds, news, strict=True):
        old.replace_all_uses_with(new)
