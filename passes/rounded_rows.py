"""How a graph says that a layer's rows are rounded: pairs of nodes that leave float32 as float32, in standard ops.

    bf16, fp16   Cast(to float) of Cast(to 16 bits) of x
    fp8          DequantizeLinear of QuantizeLinear of x, one constant scale
    int8, int16  the same with a scale for each row, computed from its largest magnitude

Written and recognised here, side by side, so that precision passes and lowerings cannot drift apart. Any engine can
run the pairs as they stand; one that has an op on small numbers takes the pair away.
Source: https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html, onnx__DequantizeLinear.html
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from .weights import constant_of, int64_constant, registered

__all__ = ["Place", "RoundedRows", "round_rows", "rows_behind"]

SIXTEEN_BITS = (ir.DataType.BFLOAT16, ir.DataType.FLOAT16)
LEVELS = {ir.DataType.INT8: np.float32(127.0), ir.DataType.INT16: np.float32(32512.0)}  # 127 * 256: two bytes of 127
TINY = np.float32(1e-30)  # the step of a row of zeros, which stays zeros


@dataclass(frozen=True)
class Place:
    """Where new nodes go: before `node`, their values named `stem`/..."""

    graph: ir.Graph
    node: ir.Node
    stem: str

    def add(
        self,
        name: str,
        op_type: str,
        inputs: Sequence[ir.Value],
        dtype: ir.DataType,
        shape: ir.Shape | None,
        **options: int | list[int],
    ) -> ir.Value:
        """The output of a new node."""
        value = ir.Value(name=f"{self.stem}/{name}", type=ir.TensorType(dtype), shape=shape)
        self.graph.insert_before(self.node, ir.node(op_type, inputs, options or None, outputs=[value]))
        return value

    def constant(self, name: str, number: np.float32 | np.ndarray) -> ir.Value:
        """The graph's initializer `name` that holds one number, or a few."""
        tensor = ir.Tensor(np.asarray(number), name=name)
        value = ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
        return registered(self.graph, value)


@dataclass(frozen=True)
class RoundedRows:
    """`x` before rounding, what its rows are rounded to, and the constant scale where there is one."""

    x: ir.Value
    dtype: ir.DataType
    scale: ir.Value | None = None


def round_rows(place: Place, x: ir.Value, dtype: ir.DataType, scale: np.float32 | None = None) -> ir.Value:
    """`x` rounded to `dtype` and back to float32; `scale` is needed for FLOAT8E4M3FN.

    x: float32 [T, K]. Raises: KeyError for a type that has no form here.
    """
    if dtype == ir.DataType.FLOAT:
        return x
    if dtype in SIXTEEN_BITS:
        small = place.add("rounded", "Cast", [x], dtype, x.shape, to=dtype.value)
        return place.add("rows", "Cast", [small], ir.DataType.FLOAT, x.shape, to=ir.DataType.FLOAT.value)
    if dtype == ir.DataType.FLOAT8E4M3FN:
        assert scale is not None
        return _pair(place, x, place.constant(f"{place.stem}/scale", scale), {"output_dtype": dtype.value})
    return _round_to_steps(place, x, dtype, LEVELS[dtype])


def _round_to_steps(place: Place, x: ir.Value, dtype: ir.DataType, levels: np.float32) -> ir.Value:
    """Each row in steps of its own largest magnitude / `levels`: a row never depends on its neighbours."""
    assert x.shape is not None
    rows = ir.Shape([x.shape[0]])
    sizes = place.add("sizes", "Abs", [x], ir.DataType.FLOAT, x.shape)
    axis = int64_constant(place.graph, [-1])
    largest = place.add("largest", "ReduceMax", [sizes, axis], ir.DataType.FLOAT, rows, keepdims=0)
    divisor = place.constant(f"levels_{dtype.name.lower()}", levels)
    step = place.add("step", "Div", [largest, divisor], ir.DataType.FLOAT, rows)
    safe = place.add("safe_step", "Max", [step, place.constant("least_step", TINY)], ir.DataType.FLOAT, rows)
    return _pair(place, x, safe, {"axis": 0, "output_dtype": dtype.value})


def _pair(place: Place, x: ir.Value, scale: ir.Value, options: dict[str, int]) -> ir.Value:
    dtype = ir.DataType(options["output_dtype"])
    small = place.add("quantized", "QuantizeLinear", [x, scale], dtype, x.shape, **options)
    back = {name: value for name, value in options.items() if name == "axis"}
    return place.add("rows", "DequantizeLinear", [small, scale], ir.DataType.FLOAT, x.shape, **back)


def rows_behind(rows: ir.Value) -> RoundedRows:
    """What `rows` were before rounding, and how they are rounded; rows that are not come back as they are, FLOAT."""
    small = _maker_input(rows, "Cast") or _maker_input(rows, "DequantizeLinear")
    if small is None or small.dtype is None:
        return RoundedRows(rows, ir.DataType.FLOAT)
    x = _maker_input(small, "Cast") or _maker_input(small, "QuantizeLinear")
    if x is None or x.dtype != ir.DataType.FLOAT or small.is_graph_output():
        return RoundedRows(rows, ir.DataType.FLOAT)
    if small.dtype in SIXTEEN_BITS:
        return RoundedRows(x, small.dtype)
    scale = _inputs(small)[1]
    if scale not in _inputs(rows):
        return RoundedRows(rows, ir.DataType.FLOAT)
    return RoundedRows(x, small.dtype, scale if constant_of(scale) is not None else None)


def _maker_input(value: ir.Value, op_type: str) -> ir.Value | None:
    """The first input of the `op_type` that makes `value`, if such a node makes it."""
    node = value.producer()
    return node.inputs[0] if node is not None and node.domain == "" and node.op_type == op_type else None


def _inputs(value: ir.Value) -> Sequence[ir.Value | None]:
    node = value.producer()
    assert node is not None
    return node.inputs
