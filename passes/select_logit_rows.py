"""Logits for the rows that somebody wants, and not for the other thousands of a prefill.

In: a graph whose logits have a row for every token. Out: a graph with the input `logit_rows` [R], whose logits have R
rows. The choice is made as early as it can be: whatever only the logits need (head, final norm, the last layer's MLP)
is computed for the wanted rows alone. A Gather before the head was the simpler alternative; it lost a layer's MLP.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from ..plugins import contract
from .base import explain
from .target import Target
from .trace_rows import row_inputs

__all__ = ["select_logit_rows"]

NUM_ROWS = "R"


@dataclass(frozen=True)
class Plan:
    """`nodes` are computed for wanted rows only; `cuts` are the values they read whose rows must be chosen first.

    Both map to the axis of the rows: of a node's outputs, of a cut itself.
    """

    nodes: Mapping[ir.Node, int]
    cuts: Mapping[ir.Value, int]


def select_logit_rows(model: ir.Model, target: Target) -> int:
    """Add the input logit_rows and choose these rows as early as possible; returns 1, or 0 if it was done before.

    before:  total = Add(attention, residual);  ... mlp, norm ...;  logits = MatMul(normalized, head)     [T, vocab]
    after:   total = Add(Gather(attention, logit_rows), Gather(residual, logit_rows));  ...               [R, vocab]

    Kept for all rows: attention and what comes before it; whatever another output or another layer needs too; operators
    that are not known to treat rows one by one (`trace_rows`).
    """
    del target  # rows that nobody wants cost time on any target
    graph = model.graph
    if any(value.name == contract.LOGIT_ROWS for value in graph.inputs):
        return 0
    logits = next((value for value in graph.outputs if value.name == contract.LOGITS), None)
    if logits is None:
        raise ValueError(f"no output is called {contract.LOGITS}")
    plan = _plan(graph, logits)
    if not plan.nodes:
        explain(model, logits, f"{_maker(logits)} is not known to treat rows one by one: all logits are computed")
    rows = ir.Value(name=contract.LOGIT_ROWS, shape=ir.Shape([NUM_ROWS]), type=ir.TensorType(ir.DataType.INT64))
    graph.inputs.append(rows)
    for value, axis in plan.cuts.items():
        _choose(graph, value, axis, rows, plan)
    for node, axis in plan.nodes.items():
        for output in node.outputs:
            output.shape = _with_rows(output, axis)
    return 1


def _maker(value: ir.Value) -> str:
    node = value.producer()
    return "an input" if node is None else node.op_type


def _plan(graph: ir.Graph, logits: ir.Value) -> Plan:
    """Walk back from the logits for as long as a node serves only nodes that were walked over already."""
    wanted: dict[ir.Value, int] = {logits: 0}
    nodes: dict[ir.Node, int] = {}
    for node in reversed(graph):
        axes = {wanted[output] for output in node.outputs if output in wanted}
        if len(axes) != 1 or not all(_only_for(output, logits, nodes) for output in node.outputs):
            continue
        (axis,) = axes
        inputs = row_inputs(node, axis)
        if not inputs:
            continue
        nodes[node] = axis
        for place, input_axis in inputs:
            value = node.inputs[place]
            assert value is not None
            if wanted.setdefault(value, input_axis) != input_axis:
                return Plan({}, {logits: 0})
    made = {output for node in nodes for output in node.outputs}
    return Plan(nodes, {value: axis for value, axis in wanted.items() if value not in made})


def _only_for(output: ir.Value, logits: ir.Value, nodes: Mapping[ir.Node, int]) -> bool:
    """Whether all rows of `output` but the wanted ones would be of no use to anybody."""
    if output is logits:
        return not output.uses()
    return not output.is_graph_output() and all(node in nodes for node in output.consumers())


def _choose(graph: ir.Graph, value: ir.Value, axis: int, rows: ir.Value, plan: Plan) -> None:
    """Put a Gather behind `value`, for the planned nodes only; for the logits themselves, in front of the output."""
    chosen = ir.Value(name=f"{value.name}/chosen", type=value.type, shape=_with_rows(value, axis))
    gather = ir.node("Gather", [value, rows], {"axis": axis}, outputs=[chosen])
    users = [(node, place) for node, place in value.uses() if node in plan.nodes]
    if users:
        readers = {node for node, _ in users}
        graph.insert_before(next(node for node in graph if node in readers), gather)
        for node, place in users:
            node.replace_input_with(place, chosen)
        return
    graph.append(gather)
    graph.outputs[graph.outputs.index(value)] = chosen
    chosen.name, value.name = value.name, f"{value.name}/all_rows"


def _with_rows(value: ir.Value, axis: int) -> ir.Shape | None:
    if value.shape is None:
        return None
    return ir.Shape([NUM_ROWS if place == axis else size for place, size in enumerate(value.shape)])
