"""Several linear layers over the same rows made one: what merge_qkv and merge_gate_up share.

In: the results of the layers, by role. Out: one MatMul (+ Add) and a Split that gives the same results; or the reason
why they must stay apart. The merged weight is computed when it is read: concatenating in the pass was the alternative
and lost, since it holds every merged weight of the model in memory.
Source: https://onnx.ai/onnx/operators/onnx__MatMul.html, https://onnx.ai/onnx/operators/onnx__Split.html
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from .linears import Linear, linear_behind
from .weights import constant_of, derive, derive_sliced, int64_constant, read, value_like

__all__ = ["merge_linears", "mergeable_linears"]


def mergeable_linears(values: Mapping[str, ir.Value]) -> list[Linear] | str:
    """The linear layers behind `values`, given by role, if one MatMul can stand for all of them; else why it cannot."""
    makers = {value.producer() for value in values.values()}
    maker = makers.pop()
    if not makers and maker is not None and maker.op_type == "Split":
        return f"{', '.join(values)} are parts of one projection already: {maker.inputs[0].name}"  # type: ignore[union-attr]
    linears: list[Linear] = []
    for role, value in values.items():
        linear = linear_behind(value)
        if isinstance(linear, str):
            return f"{role}: {linear}"
        linears.append(linear)
    return _difference(linears) or linears


def _difference(linears: Sequence[Linear]) -> str | None:
    """The first thing that forbids one MatMul for all of them, or None."""
    first = linears[0]
    for linear in linears[1:]:
        if sum(other.y is linear.y for other in linears) > 1:
            return f"{linear.y.name} has two roles: nothing to merge"
        if linear.x is not first.x:
            return f"{first.y.name} reads {first.x.name}, {linear.y.name} reads {linear.x.name}: not the same input"
        if (linear.bias is None) != (first.bias is None):
            return f"one of {first.y.name} and {linear.y.name} has a bias, the other has none"
        if _dtype(linear.weight) != _dtype(first.weight):
            return f"{first.weight.name} is {_dtype(first.weight)}, {linear.weight.name} is {_dtype(linear.weight)}"
    return next((f"{linear.y.name} is a graph output" for linear in linears if linear.y.is_graph_output()), None)


def merge_linears(graph: ir.Graph, linears: Sequence[Linear]) -> None:
    """Replace the linears (see `mergeable_linears`) by one MatMul (+ Add) and a Split; the weights stay lazy.

    The Split's outputs take over the names of the old results. Old nodes are left without users.
    """
    x, total = linears[0].x, sum(linear.out_features for linear in linears)
    name = "+".join(str(linear.y.name) for linear in linears)
    merged = value_like(linears[0].y, name, total)
    weight = _joined_weight(linears)
    bias = _joined_bias(linears)
    if bias is None:
        nodes = [ir.node("MatMul", [x, weight], outputs=[merged])]
    else:
        product = value_like(merged, f"{name}/product")
        nodes = [
            ir.node("MatMul", [x, weight], outputs=[product]),
            ir.node("Add", [product, bias], outputs=[merged]),
        ]
        graph.register_initializer(bias)
    graph.register_initializer(weight)
    sizes = int64_constant(graph, [linear.out_features for linear in linears])
    parts = [value_like(linear.y, str(linear.y.name)) for linear in linears]
    nodes.append(ir.node("Split", [merged, sizes], {"axis": -1}, outputs=parts))
    _insert_behind(graph, x, nodes)
    for linear, part in zip(linears, parts, strict=True):
        linear.y.replace_all_uses_with(part)


def _joined_weight(linears: Sequence[Linear]) -> ir.Value:
    name = "+".join(str(linear.weight.name) for linear in linears)
    shape = (linears[0].in_features, sum(linear.out_features for linear in linears))
    return derive_sliced(
        name, _dtype(linears[0].weight), shape, lambda start, stop: _joined_columns(linears, start, stop), axis=1
    )


def _joined_columns(linears: Sequence[Linear], start: int, stop: int) -> np.ndarray:
    """Columns `start` to `stop` of all matrices side by side, each read as far as it reaches into them."""
    parts, first = [], 0
    for linear in linears:
        last = first + linear.out_features
        if first < stop and start < last:
            parts.append(linear.columns(max(start, first) - first, min(stop, last) - first))
        first = last
    return np.concatenate(parts, 1)


def _joined_bias(linears: Sequence[Linear]) -> ir.Value | None:
    biases = [linear.bias for linear in linears if linear.bias is not None]
    if not biases:
        return None
    name = "+".join(str(bias.name) for bias in biases)
    shape = (sum(linear.out_features for linear in linears),)
    return derive(name, _dtype(biases[0]), shape, lambda: np.concatenate([read(bias) for bias in biases]))


def _dtype(value: ir.Value) -> ir.DataType:
    tensor = constant_of(value)
    assert tensor is not None
    return tensor.dtype


def _insert_behind(graph: ir.Graph, value: ir.Value, nodes: Sequence[ir.Node]) -> None:
    """Put `nodes` right behind the node that makes `value`: before all who can read their outputs."""
    maker = value.producer()
    if maker is None:  # a graph input
        graph.insert_before(next(iter(graph)), nodes)
    else:
        graph.insert_after(maker, nodes)
