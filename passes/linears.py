"""Linear layers as passes see them: a MatMul with a constant matrix, perhaps a constant bias after it.

    y = MatMul(x, W)            W: initializer [in, out]
    y = MatMul(x, Transpose(W)) W: initializer [out, in], as torch and checkpoints store it
    y = Add(MatMul(x, ...), b)  b: initializer [out]

Flows in: the value y. Flows out: a `Linear`, or the reason why y is none. merge_qkv, merge_gate_up and lower_to_cpu
all start from here, so what counts as a linear layer is decided once. Gemm is not recognised: exporters at opset 23
write MatMul, because Gemm takes no leading axes.
Source: https://onnx.ai/onnx/operators/onnx__MatMul.html (numpy.matmul semantics).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from .weights import constant_of, derive, int64_constant, read, value_like

__all__ = ["Linear", "is_matrix_transpose", "linear_behind", "merge_linears", "mergeable_linears"]


@dataclass(frozen=True)
class Linear:
    """`y = x @ W (+ bias)` with constant W; `stored_transposed` tells that `weight` is [out, in]."""

    x: ir.Value
    y: ir.Value
    weight: ir.Value
    stored_transposed: bool
    bias: ir.Value | None
    in_features: int
    out_features: int

    def matrix(self) -> np.ndarray:
        """W as [in_features, out_features]; read now, not kept."""
        array = read(self.weight)
        return array.T if self.stored_transposed else array

    @property
    def last_node(self) -> ir.Node:
        """The node that makes y: the Add where there is a bias, else the MatMul."""
        node = self.y.producer()
        assert node is not None
        return node


def linear_behind(y: ir.Value) -> Linear | str:
    """The linear layer that makes `y`, or the reason why there is none."""
    node = y.producer()
    if node is None:
        return f"{y.name} is a graph input or a constant, not the output of a MatMul"
    if node.op_type == "Add":
        return _with_bias(y, node)
    return _without_bias(y, node)


def _without_bias(y: ir.Value, node: ir.Node) -> Linear | str:
    if node.domain != "" or node.op_type != "MatMul":
        return f"{y.name} comes from {node.op_type}, not from a MatMul"
    x, weight = node.inputs
    assert x is not None
    assert weight is not None
    stored_transposed = is_matrix_transpose(weight.producer())
    if stored_transposed:
        weight = weight.producer().inputs[0]  # type: ignore[union-attr]
    tensor = constant_of(weight)
    if weight is None or tensor is None:
        return f"the weight of {y.name} is not constant"
    if len(tensor.shape) != 2:
        return f"the weight {weight.name} of {y.name} has shape {list(tensor.shape)}, not two axes"
    rows, columns = (int(size) for size in tensor.shape.numpy())
    sizes = (columns, rows) if stored_transposed else (rows, columns)
    return Linear(x, y, weight, stored_transposed, None, *sizes)


def _with_bias(y: ir.Value, node: ir.Node) -> Linear | str:
    for product, bias in (node.inputs, node.inputs[::-1]):
        if product is None or bias is None or constant_of(bias) is None:
            continue
        linear = linear_behind(product)
        if isinstance(linear, str):
            return linear
        if linear.bias is not None or len(product.uses()) != 1 or product.is_graph_output():
            return f"{product.name} is needed without its bias too"
        if list(constant_of(bias).shape) != [linear.out_features]:  # type: ignore[union-attr]
            return f"{bias.name} is no bias: its shape is not [{linear.out_features}]"
        return Linear(
            linear.x, y, linear.weight, linear.stored_transposed, bias, linear.in_features, linear.out_features
        )
    return f"{y.name} adds two computed values: no linear layer"


def is_matrix_transpose(node: ir.Node | None) -> bool:
    """Whether `node` swaps the two axes of a matrix."""
    if node is None or node.domain != "" or node.op_type != "Transpose":
        return False
    perm = node.attributes.get_ints("perm", [1, 0])
    return list(perm) == [1, 0]


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
    return derive(name, _dtype(linears[0].weight), shape, lambda: np.concatenate([one.matrix() for one in linears], 1))


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
