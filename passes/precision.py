"""Which linear layer gets which format: the question that all precision passes ask, answered once.

A node and the target flow in; the layer with its name and its format flows out, if it is a layer that no precision pass
has touched yet. Deciding in each pass was the alternative and lost: a layer that two passes want, or none, is a layer
that nobody decided on.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from ..plugins import contract
from .linears import Linear, linear_behind
from .rounded_rows import Place, rows_behind
from .target import Target
from .weights import constant_of, module_of

__all__ = ["HEAD", "Layer", "becomes_logits", "choose", "layer_of", "layers_of"]

HEAD = "lm_head"  # the name of the last layer, whatever its matrix is called: it may be the embedding's
MAX_OPS_BEHIND_HEAD = 16  # scale, softcap, casts


@dataclass(frozen=True)
class Layer:
    """One linear layer: `module` is the name that recipes and calibration know it by."""

    linear: Linear
    module: str

    @property
    def is_head(self) -> bool:
        """Whether its output becomes the logits."""
        return self.module == HEAD

    @property
    def shape(self) -> tuple[int, int]:
        """[K, N] of its matrix."""
        return self.linear.in_features, self.linear.out_features

    def place(self, graph: ir.Graph) -> Place:
        """Where nodes go that stand between its inputs and its product."""
        return Place(graph, self.linear.product, str(self.linear.y.name))

    def put(self, rows: ir.Value, weights: ir.Value) -> None:
        """Let the product read `rows` and `weights`."""
        self.linear.product.replace_input_with(0, rows)
        self.linear.product.replace_input_with(1, weights)


def layers_of(graph: ir.Graph) -> Iterator[Layer]:
    """The linear layers whose matrices are float32 constants, in the graph's order."""
    for node in graph:
        layer = layer_of(node)
        if layer is not None:
            yield layer


def choose(node: ir.Node, target: Target, formats: Collection[str]) -> Layer | None:
    """The layer that `node` is the product of, if the target wants it in one of `formats` and it is still float32."""
    layer = layer_of(node)
    if layer is None or target.format_of(layer.module, layer.is_head) not in formats:
        return None
    return layer if rows_behind(layer.linear.x).dtype == ir.DataType.FLOAT else None


def layer_of(node: ir.Node) -> Layer | None:
    """The layer that `node` is the product of, if its matrix is a float32 constant."""
    if node.domain != "" or node.op_type != "MatMul":
        return None
    linear = linear_behind(_with_bias(node.outputs[0]))
    if isinstance(linear, str):
        return None
    tensor = constant_of(linear.weight)
    if tensor is None or tensor.dtype != ir.DataType.FLOAT:
        return None
    name = HEAD if becomes_logits(linear.y) else module_of(str(linear.weight.name)) or str(linear.weight.name)
    return Layer(linear, name)


def _with_bias(product: ir.Value) -> ir.Value:
    for user in product.consumers():
        if user.op_type == "Add" and not isinstance(linear_behind(user.outputs[0]), str):
            return user.outputs[0]
    return product


def becomes_logits(value: ir.Value) -> bool:
    """Whether only operators on single numbers stand between `value` and the logits."""
    for _ in range(MAX_OPS_BEHIND_HEAD):
        if value.is_graph_output():
            return value.name == contract.LOGITS
        users = value.consumers()
        if len(users) != 1 or users[0].op_type in ("MatMul", "Gather") or users[0].domain != "":
            return False
        value = users[0].outputs[0]
    return False
