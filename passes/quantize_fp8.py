"""FP8 E4M3 W8A8: weights with a scale a column, rows with one calibrated scale.

In: linear layers in float32 and the largest magnitude of their rows, from calibration. Out: the same between explicit
Q/DQ pairs. Scales of rows computed per token were the alternative and lost: FP8 engines want them constant.
Source: OCP 8-bit floating point specification (OFP8) 1.0; Micikevicius et al. 2022, "FP8 formats for deep learning".
"""

import numpy as np
import onnx_ir as ir

from .base import Fusion, run_fusion
from .precision import Layer, choose
from .quantize_arrays import FP8_MAX, quantize_columns
from .rounded_rows import round_rows
from .stored_weights import store_columns
from .target import Target

__all__ = ["quantize_fp8"]


def quantize_fp8(model: ir.Model, target: Target) -> int:
    """Put every layer whose format is fp8 between Q/DQ pairs; returns how many.

    before:  MatMul(x, W)
    after:   MatMul(DQ(Q(x, s), s), DQ(W/fp8, W/fp8/scale, axis=1))     s = largest magnitude of the rows / 448

    Kept untouched: layers of other formats; layers that calibration has not seen, with that reason.
    """

    def check(layer: Layer, target: Target) -> Layer | str:
        if layer.module not in target.calibration.linears:
            return f"calibration knows no range of {layer.module}"
        return layer

    def rewrite(graph: ir.Graph, layer: Layer) -> None:
        largest = target.calibration.linears[layer.module].largest
        place, linear = layer.place(graph), layer.linear
        weights = store_columns(
            place,
            f"{linear.weight.name}/fp8",
            layer.shape,
            ir.DataType.FLOAT8E4M3FN,
            lambda start, stop: quantize_columns(linear.columns(start, stop), "fp8"),
        )
        scale = np.float32(max(largest, 1e-30) / FP8_MAX)
        layer.put(round_rows(place, linear.x, ir.DataType.FLOAT8E4M3FN, scale), weights)

    return run_fusion(model, target, Fusion(lambda node: choose(node, target, ("fp8",)), check, rewrite))
