"""What each operator needs when the batch axis goes: the table behind `drop_batch_axis`.

A node and the values that have the axis flow in; the edit that makes the node right for values without it flows out, or
the reason why there is none. Inferring this from shapes was the alternative and lost: a size of 1 does not say whose it
is.
"""

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from ..plugins.contract import DOMAIN
from .trace_rows import ELEMENTWISE, REDUCTIONS, ROW_OPS
from .weights import int64_constant, small_constant

__all__ = ["RULES", "Batched", "Edit", "added_axis"]


@dataclass(frozen=True)
class Edit:
    """What one node needs: `apply` edits it; `batched` tells whether its outputs had the axis (and lose it)."""

    apply: Callable[[ir.Graph], None]
    batched: bool


Batched = set[ir.Value]
Rule = Callable[[ir.Node, Batched], Edit | str]


def _nothing(graph: ir.Graph) -> None:
    """The node works on [T, ...] as it stands."""


def added_axis(node: ir.Node) -> Edit | None:
    """Where the axis comes from: Unsqueeze(input or [T], [0, ..]), or Reshape([T, ..], [1, T, ..]) of flat rows."""
    source = node.inputs[0] if node.inputs else None
    if node.domain != "" or source is None or source.is_initializer() or source.shape is None:
        return None
    if node.op_type == "Unsqueeze":
        return _added_by_unsqueeze(node) if len(source.shape) == 1 or source.is_graph_input() else None
    is_flat = node.op_type == "Reshape" and _has_rows_on(source.shape, 0) and _has_rows_on(node.outputs[0].shape, 1)
    edit = _reshape(node, set()) if is_flat else None
    return edit if isinstance(edit, Edit) and edit.batched else None


def _has_rows_on(shape: ir.Shape | None, axis: int) -> bool:
    """Whether the size of this axis is open: only the number of rows is."""
    return shape is not None and len(shape) > axis and not isinstance(shape[axis], int)


def _added_by_unsqueeze(node: ir.Node) -> Edit | None:
    axes = small_constant(node.inputs[1])
    if axes is None or 0 not in axes or (axes < 0).any():
        return None
    others = [int(axis) - 1 for axis in axes if axis != 0]

    def apply(graph: ir.Graph) -> None:
        if others:
            node.replace_input_with(1, int64_constant(graph, others))
        else:
            _bypass(node)

    return Edit(apply, batched=True)


def _bypass(node: ir.Node) -> None:
    source = node.inputs[0]
    assert source is not None
    output = node.outputs[0]
    if output.is_graph_output():
        name, output.name = output.name, f"{output.name}/batched"
        source.name = name
    output.replace_all_uses_with(source, replace_graph_outputs=True)


def _elementwise(node: ir.Node, batched: Batched) -> Edit | str:
    """numpy broadcasting aligns at the end, so a shorter operand needs no change; an equally long one would."""
    operands = [value for value in node.inputs if value is not None]
    ranks = {len(value.shape) if value.shape is not None else 0 for value in operands if value in batched}
    if len(ranks) != 1 or 0 in ranks:
        return f"the operands of {node.outputs[0].name} are not known to have one number of axes"
    (rank,) = ranks
    for value in operands:
        if value not in batched and (value.shape is None or len(value.shape) >= rank):
            return f"{value.name} has as many axes as the values with the batch axis"
    return Edit(_nothing, batched=True)


def _first_input_only(node: ir.Node, batched: Batched) -> Edit | str:
    """MatMul with a matrix: the axes before the last two are carried through."""
    others = [value for value in node.inputs[1:] if value is not None]
    if node.inputs[0] not in batched or any(value in batched or len(value.shape or ()) != 2 for value in others):
        return f"{node.op_type} has another operand than a matrix"
    return Edit(_nothing, batched=True)


def _ours(node: ir.Node, batched: Batched) -> Edit | str:
    """All leading axes are rows to our operators; inputs without the axis are weights and tables."""
    return Edit(_nothing, batched=True)


def _along_axis(node: ir.Node, batched: Batched) -> Edit | str:
    """Operators with one `axis`, which counts from the front where it is not negative."""
    axis = node.attributes.get_int("axis", -1 if node.op_type != "Split" else 0)
    if axis == 0 or not all(value in batched or value is None or value.is_initializer() for value in node.inputs):
        return f"{node.op_type} works along the batch axis, or joins values with and without it"
    return Edit(lambda _: _set_axis(node, axis), batched=True)


def _set_axis(node: ir.Node, axis: int) -> None:
    if axis > 0:
        node.attributes["axis"] = ir.AttrInt64("axis", axis - 1)


def _gather(node: ir.Node, batched: Batched) -> Edit | str:
    """Rows of a table by batched ids; entry 0 of the batch axis, which ends it; or entries of a later axis."""
    data, indices = node.inputs[:2]
    axis = node.attributes.get_int("axis", 0)
    if data not in batched:
        return Edit(_nothing, batched=True) if axis == 0 else f"{node.outputs[0].name} does not gather along axis 0"
    index = small_constant(indices)
    if axis == 0 and index is not None and index.shape == () and index in (0, -1):
        return Edit(lambda _: _bypass(node), batched=False)
    if axis == 0 or indices in batched:
        return f"{node.outputs[0].name} gathers along the batch axis"
    return Edit(lambda _: _set_axis(node, axis), batched=True)


def _squeeze(node: ir.Node, batched: Batched) -> Edit | str:
    axes = small_constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if axes is None or axes.tolist() != [0]:
        return "Squeeze of other axes than the first"
    return Edit(lambda _: _bypass(node), batched=False)


def _unsqueeze(node: ir.Node, batched: Batched) -> Edit | str:
    axes = small_constant(node.inputs[1])
    if axes is None or 0 in axes:
        return "Unsqueeze before the batch axis"
    moved = [int(axis) - (axis > 0) for axis in axes]
    return Edit(lambda graph: node.replace_input_with(1, int64_constant(graph, moved)), batched=True)


def _reshape(node: ir.Node, batched: Batched) -> Edit | str:
    """[1, ...] loses its 1; a target without it takes the same elements from [T, ...] as from [1, T, ...]."""
    shape = small_constant(node.inputs[1])
    if shape is None or 0 in shape:
        return "Reshape to a shape that is computed, or copies axes"
    if shape[0] != 1:
        return Edit(_nothing, batched=False)
    rest = [int(size) for size in shape[1:]]
    return Edit(lambda graph: node.replace_input_with(1, int64_constant(graph, rest)), batched=True)


def _expand(node: ir.Node, batched: Batched) -> Edit | str:
    """The shape, aligned at the end, leaves the batch axis alone: it is too short to reach it, or has a 1 there."""
    source, shape = node.inputs[0], small_constant(node.inputs[1])
    rank = len(source.shape) if source is not None and source.shape is not None else 0
    if shape is None or not 0 < len(shape) <= rank or (len(shape) == rank and shape[0] != 1):
        return "Expand to a shape that is computed, or widens the batch axis"
    if len(shape) < rank:
        return Edit(_nothing, batched=True)
    rest = [int(size) for size in shape[1:]]
    return Edit(lambda graph: node.replace_input_with(1, int64_constant(graph, rest)), batched=True)


def _over_listed_axes(node: ir.Node, batched: Batched) -> Edit | str:
    """Slice and reductions, whose axes are an input: the fourth of Slice, else the second."""
    place = 3 if node.op_type == "Slice" else 1
    axes = small_constant(node.inputs[place]) if len(node.inputs) > place else None
    source = node.inputs[0]
    rank = len(source.shape) if source is not None and source.shape is not None else 0
    if axes is None or not rank or any(axis in (0, -rank) for axis in axes):
        return f"{node.op_type} over the batch axis, or over axes that are not known"
    moved = [int(axis) - (axis > 0) for axis in axes]
    return Edit(lambda graph: node.replace_input_with(place, int64_constant(graph, moved)), batched=True)


def _transpose(node: ir.Node, batched: Batched) -> Edit | str:
    perm = node.attributes.get_ints("perm", [1])
    if perm[0] != 0:
        return "Transpose moves the batch axis"
    rest = [axis - 1 for axis in perm[1:]]

    def apply(graph: ir.Graph) -> None:
        node.attributes["perm"] = ir.AttrInt64s("perm", rest)

    return Edit(apply, batched=True)


RULES: dict[tuple[str, str], Rule] = {
    **{("", op_type): _elementwise for op_type in ELEMENTWISE},
    **{(DOMAIN, op_type): _ours for op_type in (*ROW_OPS, "Attention")},
    **{
        ("", op_type): _along_axis
        for op_type in ("Concat", "RMSNormalization", "LayerNormalization", "Softmax", "Split")
    },
    **{("", op_type): _over_listed_axes for op_type in (*REDUCTIONS, "Slice")},
    ("", "Expand"): _expand,
    ("", "Gather"): _gather,
    ("", "MatMul"): _first_input_only,
    ("", "Reshape"): _reshape,
    ("", "Squeeze"): _squeeze,
    ("", "Transpose"): _transpose,
    ("", "Unsqueeze"): _unsqueeze,
}
