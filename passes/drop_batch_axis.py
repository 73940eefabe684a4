"""The axis of size 1 that a batch would have, taken out of the whole graph: rows lead, from the ids to the logits.

In: a graph that puts [T] ids under a batch axis, computes on [1, T, ...] and takes the axis off the logits again. Out:
the same nodes on [T, ...]. That saves the nodes that add and remove the axis and, at every step, a copy of the logits.
It is all or nothing: if one operator is not known to carry the axis through untouched, the graph stays as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from ..plugins.contract import DOMAIN
from .base import explain, remove_dead_nodes
from .target import Target
from .trace_rows import ELEMENTWISE, ROW_OPS
from .weights import int64_constant, small_constant

__all__ = ["drop_batch_axis"]


@dataclass(frozen=True)
class Edit:
    """What one node needs: `apply` edits it; `batched` tells whether its outputs had the axis (and lose it)."""

    apply: Callable[[ir.Graph], None]
    batched: bool


Batched = set[ir.Value]
Rule = Callable[[ir.Node, Batched], Edit | str]


def drop_batch_axis(model: ir.Model, target: Target) -> int:
    """Remove a leading axis of 1 that an Unsqueeze adds and a Squeeze or Gather removes; returns the nodes edited.

    before:  x = Gather(table, Unsqueeze(ids, [0]))     [1, T, H]     ...  Squeeze(MatMul(x, head), [0])
    after:   x = Gather(table, ids)                     [T, H]        ...  MatMul(x, head)

    Kept untouched, as a whole: a graph where an operator is in the way that is not in `RULES`, or works on axis 0.
    Source: the operators' pages under https://onnx.ai/onnx/operators/ (axis, axes and perm count from the front).
    """
    del target  # an axis of 1 is of no use anywhere
    graph = model.graph
    batched: Batched = set()
    edits: list[tuple[ir.Node, Edit]] = []
    for node in graph:
        edit = _edit(node, batched)
        if isinstance(edit, str):
            explain(model, node.outputs[0], edit)
            return 0
        if edit is None:
            continue
        edits.append((node, edit))
        if edit.batched:
            batched.update(node.outputs)
    for node, edit in edits:
        edit.apply(graph)
        if edit.batched:
            _renew(graph, node)
    remove_dead_nodes(model)
    return len(edits)


def _edit(node: ir.Node, batched: Batched) -> Edit | str | None:
    """What to do with `node`; None if it has nothing to do with the axis; a str if it is in the way."""
    if not any(value in batched for value in node.inputs):
        return _added_by_unsqueeze(node)
    rule = RULES.get((node.domain, node.op_type))
    if rule is None:
        return f"{node.op_type} is not known to carry a batch axis through"
    edit = rule(node, batched)
    if isinstance(edit, Edit) and edit.batched and any(output.is_graph_output() for output in node.outputs):
        return f"the graph output {node.outputs[0].name} has the axis"
    return edit


def _renew(graph: ir.Graph, node: ir.Node) -> None:
    """Put an equal node whose outputs have an axis less in the place of `node`: values and names keep their type."""
    outputs = [
        ir.Value(name=f"{old.name}/unbatched", type=old.type, shape=_without_first(old.shape)) for old in node.outputs
    ]
    new = ir.node(node.op_type, node.inputs, node.attributes, domain=node.domain, outputs=outputs)
    graph.insert_before(node, new)
    for old, output in zip(node.outputs, outputs, strict=True):
        old.replace_all_uses_with(output)


def _without_first(shape: ir.Shape | None) -> ir.Shape | None:
    return None if shape is None else ir.Shape(shape.dims[1:])


def _nothing(graph: ir.Graph) -> None:
    """The node works on [T, ...] as it stands."""


def _added_by_unsqueeze(node: ir.Node) -> Edit | None:
    """Unsqueeze(x, [0, ...]) of a computed x: where the axis comes from."""
    if node.domain != "" or node.op_type != "Unsqueeze" or node.inputs[0] is None or node.inputs[0].is_initializer():
        return None
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
    ("", "Gather"): _gather,
    ("", "MatMul"): _first_input_only,
    ("", "Reshape"): _reshape,
    ("", "Squeeze"): _squeeze,
    ("", "Transpose"): _transpose,
    ("", "Unsqueeze"): _unsqueeze,
}
