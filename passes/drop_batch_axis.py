"""The axis of size 1 that a batch would have, taken out of the whole graph: rows lead, from the ids to the logits.

In: a graph that puts [T] ids under a batch axis, computes on [1, T, ...] and takes the axis off the logits again. Out:
the same nodes on [T, ...]. That saves the nodes that add and remove the axis and, at every step, a copy of the logits.
It is all or nothing: if one operator is not known to carry the axis through untouched, the graph stays as it is.
"""

import onnx_ir as ir

from .base import explain, remove_dead_nodes
from .batch_axis_rules import RULES, Batched, Edit, added_axis
from .target import Target

__all__ = ["drop_batch_axis"]


def drop_batch_axis(model: ir.Model, target: Target) -> int:
    """Remove a leading axis of 1 that an Unsqueeze or Reshape adds and a Squeeze or Gather removes; returns the edits.

    before:  x = Gather(table, Unsqueeze(ids, [0]))     [1, T, H]     ...  Squeeze(MatMul(x, head), [0])
    after:   x = Gather(table, ids)                     [T, H]        ...  MatMul(x, head)

    Kept untouched, as a whole: a graph with an operator on the way that `batch_axis_rules` lacks or that uses axis 0.
    Source: the operators' pages under https://onnx.ai/onnx/operators/ (axis, axes and perm count from the front).
    """
    del target  # an axis of 1 is of no use anywhere
    graph = model.graph
    edits = _plan(model)
    for node, edit in edits.items():
        edit.apply(graph)
        if edit.batched:
            _renew(graph, node)
    remove_dead_nodes(model)
    return len(edits)


def _plan(model: ir.Model) -> dict[ir.Node, Edit]:
    """What each node needs, in order; nothing at all if one of them is in the way (which is explained)."""
    batched: Batched = set()
    edits: dict[ir.Node, Edit] = {}
    for node in model.graph:
        edit = _edit(node, batched)
        if isinstance(edit, str):
            explain(model, node.outputs[0], edit)
            return {}
        if edit is not None:
            edits[node] = edit
            batched.update(node.outputs if edit.batched else ())
    return edits


def _edit(node: ir.Node, batched: Batched) -> Edit | str | None:
    """What to do with `node`; None if it has nothing to do with the axis; a str if it is in the way."""
    if not any(value in batched for value in node.inputs):
        return added_axis(node)
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
