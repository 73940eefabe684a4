"""INT8 W8A8 and W8A16: int8 weights with a scale a column, rows in 8 or 16 bits with a scale a row.

In: linear layers in float32, smoothed or not. Out: the same between explicit Q/DQ pairs. One scale for all rows
(static, per tensor) was the alternative and lost: it needs calibration, and outliers of one token cost all others.
Source: SmoothQuant, Xiao et al. 2022, table 2 (per-token, per-channel).
"""

import onnx_ir as ir

from .base import Fusion, run_fusion
from .number_formats import FORMATS
from .precision import Layer, choose
from .quantize_arrays import quantize_columns
from .rounded_rows import round_rows
from .stored_weights import store_columns
from .target import Target

__all__ = ["quantize_int8"]

INT8 = ("int8", "int8_rows16")


def quantize_int8(model: ir.Model, target: Target) -> int:
    """Put every layer whose format is int8 or int8_rows16 between Q/DQ pairs; returns how many.

    before:  MatMul(x, W)
    after:   MatMul(DQ(Q(x, step), step), DQ(W/int8, W/int8/scale, axis=1))     step = max|x| of a row / 127 or 32512

    Kept untouched: layers of other formats; rows that are not [T, K].
    """

    def rewrite(graph: ir.Graph, layer: Layer) -> None:
        rows = FORMATS[target.format_of(layer.module, layer.is_head)].rows
        place, linear = layer.place(graph), layer.linear
        weights = store_columns(
            place,
            f"{linear.weight.name}/int8",
            layer.shape,
            ir.DataType.INT8,
            lambda start, stop: quantize_columns(linear.columns(start, stop), "int8"),
        )
        layer.put(round_rows(place, linear.x, rows), weights)

    return run_fusion(model, target, Fusion(lambda node: choose(node, target, INT8), _check, rewrite))


def _check(layer: Layer, target: Target) -> Layer | str:
    del target
    shape = layer.linear.x.shape
    if shape is None or len(shape) != 2:
        return f"{layer.linear.x.name} is {shape}, not [T, K]: there is no axis of rows"
    return layer
