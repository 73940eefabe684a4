"""Names in which a reader finds the module or the layer: in graphs, in differences of two builds, in reasons.

In: a graph whose values are called after an exporter's counters. Out: the same graph, every value named after the
module whose weight it is made with, or after its layer and operator. Names depend on the graph alone. Leaving the
exporter's was the alternative and lost: they change with every version of torch.
"""

import itertools
import re
from collections.abc import Iterator

import onnx_ir as ir

from .target import Target
from .weights import module_of

__all__ = ["name_values"]

LAYER = re.compile(r"(?:[^.]+\.)*?\d+(?=\.)")  # "model.layers.3" of "model.layers.3.mlp.up_proj"
EXPORTERS_NAME = re.compile(r"\w+")  # val_3, add_50: no dot, as state-dict names have


def name_values(model: ir.Model, target: Target) -> int:
    """Name the values that nodes make, the nodes after them, and nameless constants; returns how many names changed.

    before:  linear_3 = MatMul(mul_45, "model.layers.0.self_attn.q_proj.weight");  silu = Mul(linear_3, val_7)
    after:   model.layers.0.self_attn.q_proj = MatMul(...);  model.layers.0.Mul = Mul(..., constant.0)

    Kept untouched: names of graph inputs and outputs, and of initializers that have a state-dict name.
    """
    del target  # names are for readers
    return _rename_constants(model.graph) + _rename_values(model.graph)


def _rename_constants(graph: ir.Graph) -> int:
    """Constants that only a counter told apart are numbered in the order of their use."""
    used = dict.fromkeys(value for node in graph for value in node.inputs if value is not None)
    counted = [v for v in used if v.is_initializer() and EXPORTERS_NAME.fullmatch(str(v.name))]
    values = list(graph.initializers.values())
    graph.initializers.clear()
    taken = {value.name for value in values}  # constants that an earlier run has named
    free = (name for number in itertools.count() if (name := f"constant.{number}") not in taken)
    for value in counted:
        value.name = next(free)
    for value in values:
        graph.initializers[str(value.name)] = value
    return len(counted)


def _rename_values(graph: ir.Graph) -> int:
    """Two rounds, since a new name may be some other value's old one."""
    fixed = {value.name for value in (*graph.inputs, *graph.outputs, *graph.initializers.values())}
    wanted: dict[ir.Value, str] = {}
    for value, stem in _stems(graph):
        if not value.is_graph_output():
            wanted[value] = _free_name(stem, fixed)
            fixed.add(wanted[value])
    changed = [value for value, name in wanted.items() if value.name != name]
    for number, value in enumerate(changed):
        value.name = f"/renaming/{number}"
    for value in changed:
        value.name = wanted[value]
    for node in graph:
        node.name = node.outputs[0].name
    return len(changed)


def _stems(graph: ir.Graph) -> Iterator[tuple[ir.Value, str]]:
    """Each value that nodes make, and what it should be called if nobody else is."""
    layer = "model"
    for node in graph:
        module = _module(node)
        if module is not None and (numbered := LAYER.match(module)):
            layer = numbered.group()
        stem = module or f"{layer}.{node.op_type}"
        for place, value in enumerate(node.outputs):
            yield value, stem if place == 0 else f"{stem}/{place}"


def _module(node: ir.Node) -> str | None:
    """The module whose weight `node` reads, directly or transposed: "a.q+k" for "a.q.weight+a.k.weight"."""
    for value in node.inputs:
        producer = value.producer() if value is not None else None
        is_transposed = producer is not None and producer.op_type == "Transpose"
        weight = producer.inputs[0] if producer is not None and is_transposed else value
        if weight is not None and weight.is_initializer() and (stem := module_of(str(weight.name))):
            return f"{stem}/transposed" if node.op_type == "Transpose" else stem
    return None


def _free_name(stem: str, taken: set[str | None]) -> str:
    """`stem`, or `stem#2`, `stem#3` and so on."""
    if stem not in taken:
        return stem
    return next(name for number in itertools.count(2) if (name := f"{stem}#{number}") not in taken)
