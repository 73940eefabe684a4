"""Linear layers for the CPU engine: a product of rounded rows and stored weights becomes an op over packed weights.

In: the portable graph, which says by itself how rows are rounded and weights stored. Out: `paceline::LinearF32`,
`LinearBf16` and `LinearInt8`, their matrices packed for the kernels, tensor by tensor, when somebody writes the graph.
MatMul as onnxruntime has it lost: no bf16 on CPUs, int8 activations per tensor instead of per row, and another order
of sums at one row than at many, so that a row's bits would depend on its neighbours.

    rows, weights                what the CPU runs
    bf16, bf16 or blocks         LinearBf16; small blocks are widened when the engine is written
    int8 or int16 a row, int8    LinearInt8, LinearInt8Rows16
    fp8, fp8                     LinearBf16 on the fp8 numbers themselves, which bfloat16 holds exactly, then the scales
    anything else                LinearF32 behind whatever rounds the rows
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ..plugins.contract import DOMAIN
from ..plugins.linear import pack
from ..plugins.linear.schema import FORMATS, IN_FEATURES, OUT_FEATURES, PANEL_COLUMNS
from .base import Fusion, run_fusion
from .rounded_rows import Place
from .target import Target
from .typed_linears import TypedLinear, typed_linear_behind
from .weights import derive, derive_sliced, read, registered, value_like

__all__ = ["lower_to_cpu"]

Columns = Callable[[int, int], np.ndarray]
DTYPES = {
    "fp32": ir.DataType.FLOAT,
    "bf16": ir.DataType.BFLOAT16,
    "int8": ir.DataType.INT8,
    "int8_rows16": ir.DataType.INT8,
}
INT8_ROWS = {ir.DataType.INT8: "int8", ir.DataType.INT16: "int8_rows16"}
PACKERS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "fp32": pack.pack_f32,
    "bf16": pack.pack_bf16,
    "int8": pack.pack_steps,
    "int8_rows16": pack.pack_steps,
}
FLOAT = ir.DataType.FLOAT


@dataclass(frozen=True)
class Plan:
    """One layer, and the kernel's format that it gets: a key of `FORMATS`."""

    linear: TypedLinear
    weights: str


def lower_to_cpu(model: ir.Model, target: Target) -> int:
    """Replace every linear layer by an op of ours with packed weights; returns how many.

    before:  Add(MatMul(rows, W), b)              see the table above; b may be absent
    after:   LinearBf16(x, packed W, b, in_features=, out_features=)
             LinearInt8(x, packed W, scale of each column, b, ...)

    A matrix that is used elsewhere too (a tied embedding table) stays beside its packed copy.
    Kept untouched: products of two computed values; matrices of more than two axes.
    Source: plugins/linear for the ops and the layouts.
    """
    return run_fusion(model, target, Fusion(_pattern, _check, _rewrite))


def _pattern(node: ir.Node) -> ir.Value | None:
    """The result of a MatMul, or of the Add of its bias."""
    if node.domain != "" or node.op_type != "MatMul":
        return None
    product = node.outputs[0]
    for user in product.consumers():
        if user.op_type == "Add" and not isinstance(typed_linear_behind(user.outputs[0]), str):
            return user.outputs[0]
    return product


def _check(y: ir.Value, target: Target) -> Plan | str:
    del target  # the graph says it
    linear = typed_linear_behind(y)
    if isinstance(linear, str):
        return linear
    if linear.product_rows.dtype != FLOAT:
        return f"the rows {linear.product_rows.name} are {linear.product_rows.dtype}, not FLOAT"
    return Plan(linear, _kernel_format(linear))


def _kernel_format(linear: TypedLinear) -> str:
    rows, stored = linear.rows.dtype, linear.stored
    if rows in INT8_ROWS and stored.dtype == ir.DataType.INT8 and not stored.block_size and linear.rows.scale is None:
        return INT8_ROWS[rows]
    if rows == ir.DataType.BFLOAT16 and (stored.dtype == ir.DataType.BFLOAT16 or stored.block_size):
        return "bf16"
    if _is_fp8(linear):
        return "bf16"
    return "fp32"


def _is_fp8(linear: TypedLinear) -> bool:
    fp8 = ir.DataType.FLOAT8E4M3FN
    return linear.rows.dtype == fp8 and linear.stored.dtype == fp8 and linear.rows.scale is not None


def _rewrite(graph: ir.Graph, plan: Plan) -> None:
    linear = plan.linear
    if _is_fp8(linear):
        _rewrite_fp8(graph, linear)
        return
    x = linear.product_rows if plan.weights == "fp32" else linear.rows.x
    inputs = [x, *_packed(graph, linear, plan.weights)]
    _put(graph, linear, plan.weights, inputs, linear.bias)


def _put(graph: ir.Graph, linear: TypedLinear, weights: str, inputs: list[ir.Value], bias: ir.Value | None) -> ir.Value:
    """The op in the place of the layer."""
    sizes = {IN_FEATURES: linear.in_features, OUT_FEATURES: linear.out_features}
    y = value_like(linear.y, str(linear.y.name))
    inputs = inputs + ([bias] if bias is not None else [])
    node = ir.node(FORMATS[weights].op_type, inputs, sizes, domain=DOMAIN, outputs=[y])
    graph.insert_before(linear.last_node, node)
    linear.y.replace_all_uses_with(y, replace_graph_outputs=True)
    return y


def _packed(graph: ir.Graph, linear: TypedLinear, weights: str) -> list[ir.Value]:
    """The initializers of a layer, not computed yet: the packed matrix, and for int8 the scales of its columns."""
    stored = linear.stored
    if weights not in INT8_ROWS.values():
        return [_pack(graph, linear, weights, stored.columns)]
    assert stored.scale is not None
    return [_pack(graph, linear, weights, stored.steps), stored.scale]


def _pack(graph: ir.Graph, linear: TypedLinear, weights: str, columns: Columns) -> ir.Value:
    def panels(first: int, stop: int) -> np.ndarray:
        last_column = min(stop * PANEL_COLUMNS, linear.out_features)
        return PACKERS[weights](columns(first * PANEL_COLUMNS, last_column))

    name = f"{linear.stored.constant.name}/packed_{weights}"
    shape = pack.packed_shape(linear.in_features, linear.out_features, FORMATS[weights].group)
    return registered(graph, derive_sliced(name, DTYPES[weights], shape, panels))


def _rewrite_fp8(graph: ir.Graph, linear: TypedLinear) -> None:
    """y = LinearBf16(fp8 numbers of x, fp8 numbers of W) * (scale of x * scales of W) + b: exact products."""
    x, scale = linear.rows.x, linear.rows.scale
    assert scale is not None
    place = Place(graph, linear.last_node, f"{linear.y.name}")
    fp8 = ir.DataType.FLOAT8E4M3FN
    small = place.add("fp8", "QuantizeLinear", [x, scale], fp8, x.shape, output_dtype=fp8.value)
    steps = place.add("steps", "Cast", [small], FLOAT, x.shape, to=FLOAT.value)
    columns = linear.stored.scale
    assert columns is not None
    factors = derive(
        f"{columns.name}/rows",
        FLOAT,
        (linear.out_features,),
        lambda: np.asarray(read(columns) * read(scale), np.float32),
    )
    matrix = _pack(graph, linear, "bf16", linear.stored.steps)
    sizes = {IN_FEATURES: linear.in_features, OUT_FEATURES: linear.out_features}
    product = value_like(linear.y, f"{linear.y.name}/product")
    node = ir.node(FORMATS["bf16"].op_type, [steps, matrix], sizes, domain=DOMAIN, outputs=[product])
    graph.insert_before(linear.last_node, node)
    y = place.add("scaled", "Mul", [product, registered(graph, factors)], FLOAT, linear.y.shape)
    if linear.bias is not None:
        y = place.add("biased", "Add", [y, linear.bias], FLOAT, linear.y.shape)
    _take_over(linear.y, y)


def _take_over(old: ir.Value, new: ir.Value) -> None:
    """`new` in the place of `old`, under its name."""
    name, old.name = old.name, f"{old.name}/before"
    new.name = name
    old.replace_all_uses_with(new, replace_graph_outputs=True)
