"""Linear layers as passes see them: a MatMul with a constant matrix, perhaps a constant bias after it.

    y = MatMul(x, W)            W: initializer [in, out]
    y = MatMul(x, Transpose(W)) W: initializer [out, in], as torch and checkpoints store it
    y = Add(MatMul(x, ...), b)  b: initializer [out]

Flows in: the value y. Flows out: a `Linear`, or the reason why y is none. merge_qkv, merge_gate_up and lower_to_cpu
all start from here, so what counts as a linear layer is decided once. Gemm is not recognised: exporters at opset 23
write MatMul, because Gemm takes no leading axes.
Source: https://onnx.ai/onnx/operators/onnx__MatMul.html (numpy.matmul semantics).
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from .weights import constant_of, read_slice

__all__ = ["Linear", "is_matrix_transpose", "linear_behind"]


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

    def columns(self, start: int, stop: int) -> np.ndarray:
        """Columns of W as [in_features, stop - start]; read now, not kept."""
        part = read_slice(self.weight, 0 if self.stored_transposed else 1, start, stop)
        return part.T if self.stored_transposed else part

    def matrix(self) -> np.ndarray:
        """W as [in_features, out_features]; read now, not kept."""
        return self.columns(0, self.out_features)

    @property
    def product(self) -> ir.Node:
        """The MatMul."""
        node = self.last_node
        if node.op_type == "MatMul":
            return node
        return next(maker for value in node.inputs if value is not None and (maker := value.producer()) is not None)

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
