"""Rows that quantize well: channels with outliers divided, the weights behind them multiplied; the product stays.

In: linear layers in float32 and, from calibration, the vector for each. Out: the same function with other weights.
Source: SmoothQuant, Xiao et al. 2022, equation 3; for weight-only formats AWQ, Lin et al. 2023, equation 4.
"""

import numpy as np
import onnx_ir as ir

from .base import Fusion, run_fusion
from .precision import Layer, layer_of
from .smoothable import SMOOTHED, Source, scale_rows, source_of
from .target import Target

__all__ = ["smooth_inputs"]


def smooth_inputs(model: ir.Model, target: Target) -> int:
    """Move the calibrated factors of every layer from its rows into its weights; returns how many layers.

    before:  MatMul(RMSNormalization(x, w), W)
    after:   MatMul(RMSNormalization(x, w / s), s W)        likewise for attention's values and SwiGLU's up half

    Kept untouched: layers without a vector; those that were smoothed before; those whose rows nothing can scale.
    """

    def pattern(node: ir.Node) -> Layer | None:
        layer = layer_of(node)
        if layer is None or SMOOTHED in str(layer.linear.weight.name):
            return None
        seen = target.calibration.linears.get(layer.module)
        return layer if seen is not None and seen.smoothing is not None else None

    def check(layer: Layer, target: Target) -> tuple[Layer, Source, np.ndarray] | str:
        vector = target.calibration.linears[layer.module].smoothing
        source = source_of(layer.linear)
        if isinstance(source, str):
            return source
        if vector is None or vector.shape != (layer.linear.in_features,) or not np.all(vector > 0):
            return f"calibration has no {layer.linear.in_features} positive factors for {layer.module}"
        if not np.array_equal(source.share(vector), vector):
            return f"the factors of {layer.module} differ between heads that share values"
        return layer, source, vector

    return run_fusion(model, target, Fusion(pattern, check, _rewrite))


def _rewrite(graph: ir.Graph, plan: tuple[Layer, Source, np.ndarray]) -> None:
    layer, source, vector = plan
    source.fold(graph, vector)
    scale_rows(graph, layer.linear, vector)
