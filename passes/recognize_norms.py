"""Two more spellings of a norm: an RMS norm that has no weight, and a layer norm written as centring and RMS norm.

In: small operators, or RMSNormalization behind a subtraction of the mean. Out: RMSNormalization with a weight of ones,
LayerNormalization. What recognize_ops finds with the library's patterns is done before; these two it has no rule for.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from .base import Fusion, run_fusion
from .target import Target
from .weights import constant_of, registered, small_constant, value_like

__all__ = ["recognize_norms"]

FLOAT = ir.DataType.FLOAT


@dataclass(frozen=True)
class Norm:
    """`result` is `x` divided by its root mean square over the last axis, or centred first and then so."""

    result: ir.Node
    x: ir.Value
    epsilon: float
    width: int


def recognize_norms(model: ir.Model, target: Target) -> int:
    """Replace norms in spellings that recognize_ops has no pattern for; returns how many.

    before:  Mul(x, Reciprocal(Sqrt(Add(ReduceMean(Pow(x, 2), [-1]), eps))))
    after:   RMSNormalization(x, ones)
    before:  RMSNormalization(Sub(x, ReduceMean(x, [-1])), w)
    after:   LayerNormalization(x, w)

    Kept untouched: norms over other axes; a weight that is no vector (one for each head); graph outputs.
    Source: https://onnx.ai/onnx/operators/onnx__RMSNormalization.html, https://onnx.ai/onnx/operators/onnx__LayerNormalization.html
    """
    plain = run_fusion(model, target, Fusion(_find_plain, _check_plain, _write_plain))
    return plain + run_fusion(model, target, Fusion(_find_centred, _check_centred, _write_centred))


def _find_plain(node: ir.Node) -> Norm | None:
    if not _is(node, "Mul"):
        return None
    for x, factor in (node.inputs, node.inputs[::-1]):
        inverse = _made_by(factor, "Reciprocal")
        root = _made_by(inverse.inputs[0], "Sqrt") if inverse is not None else None
        shifted = _made_by(root.inputs[0], "Add") if root is not None else None
        mean = _made_by(shifted.inputs[0], "ReduceMean") if shifted is not None else None
        square = _made_by(mean.inputs[0], "Pow") if mean is not None else None
        if x is None or shifted is None or mean is None or square is None or square.inputs[0] is not x:
            continue
        epsilon, power = small_constant(shifted.inputs[1]), small_constant(square.inputs[1])
        is_norm = epsilon is not None and epsilon.size == 1 and power is not None and power.size == 1 and power == 2
        if is_norm and _is_over_last_axis(mean) and (width := _width(x)):
            return Norm(node, x, float(epsilon.item()), width)  # type: ignore[union-attr]
    return None


def _check_plain(norm: Norm, target: Target) -> Norm | str:
    del target  # what an operator is does not depend on the target
    return "the result is a graph output" if norm.result.outputs[0].is_graph_output() else norm


def _write_plain(graph: ir.Graph, norm: Norm) -> None:
    _replace(graph, norm, "RMSNormalization", [norm.x, _ones(graph, norm.width)])


def _find_centred(node: ir.Node) -> Norm | None:
    if not _is(node, "RMSNormalization"):
        return None
    centred = _made_by(node.inputs[0], "Sub")
    mean = _made_by(centred.inputs[1], "ReduceMean") if centred is not None else None
    if centred is None or mean is None or mean.inputs[0] is not centred.inputs[0] or not _is_over_last_axis(mean):
        return None
    x = centred.inputs[0]
    assert x is not None
    width = _width(x)
    return Norm(node, x, node.attributes.get_float("epsilon", 1e-5), width) if width else None


def _check_centred(norm: Norm, target: Target) -> Norm | str:
    del target  # as above
    rank = len(norm.x.shape) if norm.x.shape is not None else 0
    weight = constant_of(norm.result.inputs[1])
    if norm.result.attributes.get_int("axis", -1) not in (-1, rank - 1):
        return f"{norm.result.outputs[0].name} is normalized over more than the last axis"
    if weight is None or list(weight.shape) != [norm.width]:
        return f"the weight of {norm.result.outputs[0].name} is no vector of {norm.width}"
    return "the result is a graph output" if norm.result.outputs[0].is_graph_output() else norm


def _write_centred(graph: ir.Graph, norm: Norm) -> None:
    weight = norm.result.inputs[1]
    assert weight is not None
    _replace(graph, norm, "LayerNormalization", [norm.x, weight])


def _replace(graph: ir.Graph, norm: Norm, op_type: str, inputs: list[ir.Value]) -> None:
    old = norm.result.outputs[0]
    new = value_like(old, f"{old.name}/norm")
    attributes = {"axis": -1, "epsilon": norm.epsilon, "stash_type": FLOAT.value}
    graph.insert_before(norm.result, ir.node(op_type, inputs, attributes, outputs=[new]))
    old.replace_all_uses_with(new)


def _ones(graph: ir.Graph, width: int) -> ir.Value:
    name = f"float32[1] * {width}"
    tensor = ir.Tensor(np.ones(width, np.float32), name=name)
    return registered(graph, ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(FLOAT), const_value=tensor))


def _is_over_last_axis(mean: ir.Node) -> bool:
    axes = small_constant(mean.inputs[1]) if len(mean.inputs) > 1 else None
    rank = len(mean.inputs[0].shape) if mean.inputs[0] is not None and mean.inputs[0].shape is not None else 0
    return axes is not None and axes.tolist() in ([-1], [rank - 1]) and mean.attributes.get_int("keepdims", 1) == 1


def _width(x: ir.Value) -> int:
    """The size of the last axis; 0 where it is not known, or x is not float32."""
    size = x.shape[-1] if x.shape is not None and x.dtype == FLOAT else 0
    return size if isinstance(size, int) else 0


def _made_by(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if node is not None and _is(node, op_type) else None


def _is(node: ir.Node, op_type: str) -> bool:
    return node.domain == "" and node.op_type == op_type
