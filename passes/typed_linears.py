"""Linear layers whose graph says how rows are rounded and weights stored: what lowerings start from.

    y = MatMul(rounded rows, stored weights) [+ b]

The value y flows in; a `TypedLinear` flows out, or the reason why it is none. See rounded_rows.py and stored_weights.py
for the forms; linears.py has the layers before any of that.
"""

from dataclasses import dataclass

import onnx_ir as ir

from .rounded_rows import RoundedRows, rows_behind
from .stored_weights import StoredMatrix, stored_behind
from .weights import constant_of

__all__ = ["TypedLinear", "typed_linear_behind"]


@dataclass(frozen=True)
class TypedLinear:
    """`product_rows` is what the MatMul reads, `rows.x` what it was before rounding."""

    y: ir.Value
    product_rows: ir.Value
    rows: RoundedRows
    stored: StoredMatrix
    bias: ir.Value | None
    in_features: int
    out_features: int

    @property
    def last_node(self) -> ir.Node:
        """The node that makes y: the Add where there is a bias, else the MatMul."""
        node = self.y.producer()
        assert node is not None
        return node


def typed_linear_behind(y: ir.Value) -> TypedLinear | str:
    """The linear layer that makes `y`, or the reason why there is none."""
    node = y.producer()
    if node is None:
        return f"{y.name} is a graph input or a constant, not the output of a MatMul"
    if node.domain == "" and node.op_type == "Add":
        return _with_bias(y, node)
    return _without_bias(y, node)


def _without_bias(y: ir.Value, node: ir.Node) -> TypedLinear | str:
    if node.domain != "" or node.op_type != "MatMul":
        return f"{y.name} comes from {node.op_type}, not from a MatMul"
    rows, weight = node.inputs
    assert rows is not None
    assert weight is not None
    stored = stored_behind(weight)
    if isinstance(stored, str):
        return stored
    tensor = constant_of(stored.constant)
    assert tensor is not None
    first, second = (int(size) for size in tensor.shape.numpy())
    sizes = (second, first) if stored.is_transposed else (first, second)
    return TypedLinear(y, rows, rows_behind(rows), stored, None, *sizes)


def _with_bias(y: ir.Value, node: ir.Node) -> TypedLinear | str:
    for product, bias in (node.inputs, node.inputs[::-1]):
        tensor = constant_of(bias)
        if product is None or bias is None or tensor is None:
            continue
        linear = typed_linear_behind(product)
        if isinstance(linear, str):
            return linear
        if linear.bias is not None or len(product.uses()) != 1 or product.is_graph_output():
            return f"{product.name} is needed without its bias too"
        if list(tensor.shape) != [linear.out_features]:
            return f"{bias.name} is no bias: its shape is not [{linear.out_features}]"
        sizes = linear.in_features, linear.out_features
        return TypedLinear(y, linear.product_rows, linear.rows, linear.stored, bias, *sizes)
    return f"{y.name} adds two computed values: no linear layer"
