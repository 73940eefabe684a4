"""Linear layers for the CPU engine: MatMul with a constant matrix becomes an op over packed weights.

In: the portable graph. Out: a graph whose linear layers are `paceline::LinearF32`, `LinearBf16` or `LinearInt8`, as the
target's `weights` say, their matrices packed for the kernels, tensor by tensor, when somebody writes the graph. MatMul
as onnxruntime has it lost: no bf16 on CPUs, int8 activations per tensor instead of per row, and another order of sums
at one row than at many, so that a row's bits would depend on its neighbours.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ..plugins.contract import DOMAIN
from ..plugins.linear import pack
from ..plugins.linear.schema import FORMATS, IN_FEATURES, OUT_FEATURES, PANEL_COLUMNS
from .base import Fusion, run_fusion
from .errors import PassError
from .linears import Linear, linear_behind
from .target import Target
from .weights import constant_of, derive_sliced, registered, value_like

__all__ = ["lower_to_cpu"]


Compute = Callable[[np.ndarray], np.ndarray]

DTYPES = {"fp32": ir.DataType.FLOAT, "bf16": ir.DataType.BFLOAT16, "int8": ir.DataType.INT8}
PACKERS: dict[str, Compute] = {
    "fp32": pack.pack_f32,
    "bf16": pack.pack_bf16,
    "int8": lambda matrix: pack.pack_int8(matrix)[0],
}


@dataclass(frozen=True)
class Plan:
    """One linear layer and the format that its weights get: a key of `FORMATS`."""

    linear: Linear
    weights: str


def lower_to_cpu(model: ir.Model, target: Target) -> int:
    """Replace every linear layer by an op of ours with packed weights; returns how many.

    before:  Add(MatMul(x, W), b)                     W: [in, out], or a Transpose of [out, in]; b may be absent
    after:   LinearBf16(x, packed W, b, in_features=, out_features=)
             LinearInt8(x, packed W, scale of each column, b, ...)

    A matrix that is used elsewhere too (a tied embedding table) stays beside its packed copy.
    Kept untouched: products of two computed values; matrices of more than two axes or of another type than float32.
    Raises: PassError if the target's `weights` is no format of the CPU engine.
    Source: plugins/linear for the ops and the layouts.
    """
    if target.weights not in FORMATS:
        raise PassError(
            f"weights = {target.weights!r}",
            needed=f"a format that the CPU engine has: {', '.join(FORMATS)}",
            do="change 'weights' of this engine in the recipe",
        )
    return run_fusion(model, target, Fusion(_pattern, _check, _rewrite))


def _pattern(node: ir.Node) -> ir.Value | None:
    """The result of a MatMul, or of the Add of its bias."""
    if node.domain != "" or node.op_type != "MatMul":
        return None
    product = node.outputs[0]
    for user in product.consumers():
        if user.op_type == "Add" and not isinstance(linear_behind(user.outputs[0]), str):
            return user.outputs[0]
    return product


def _check(y: ir.Value, target: Target) -> Plan | str:
    linear = linear_behind(y)
    if isinstance(linear, str):
        return linear
    tensor = constant_of(linear.weight)
    if tensor is None or tensor.dtype != ir.DataType.FLOAT:
        return f"the weight {linear.weight.name} is {linear.weight.dtype}, not FLOAT"
    return Plan(linear, target.weights)


def _rewrite(graph: ir.Graph, plan: Plan) -> None:
    linear = plan.linear
    packed = [registered(graph, value) for value in _packed(linear, plan.weights)]
    inputs = [linear.x, *packed] + ([linear.bias] if linear.bias is not None else [])
    sizes = {IN_FEATURES: linear.in_features, OUT_FEATURES: linear.out_features}
    y = value_like(linear.y, str(linear.y.name))
    node = ir.node(FORMATS[plan.weights].op_type, inputs, sizes, domain=DOMAIN, outputs=[y])
    graph.insert_before(linear.last_node, node)
    linear.y.replace_all_uses_with(y, replace_graph_outputs=True)


def _packed(linear: Linear, weights: str) -> list[ir.Value]:
    """The initializers of a layer, not computed yet: the packed matrix, and for int8 the scales of its columns."""
    name = f"{linear.weight.name}/packed_{weights}"
    shape = pack.packed_shape(linear.in_features, linear.out_features, FORMATS[weights].group)

    def panels(first: int, stop: int) -> np.ndarray:
        last_column = min(stop * PANEL_COLUMNS, linear.out_features)
        return PACKERS[weights](linear.columns(first * PANEL_COLUMNS, last_column))

    def scales(first: int, stop: int) -> np.ndarray:
        return pack.int8_scales(linear.columns(first, stop))

    values = [derive_sliced(name, DTYPES[weights], shape, panels)]
    if weights == "int8":
        columns = (linear.out_features,)
        each = linear.in_features
        values.append(derive_sliced(f"{name}/scale", ir.DataType.FLOAT, columns, scales, elements_each=each))
    return values
