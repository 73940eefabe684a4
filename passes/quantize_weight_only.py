"""INT8 and INT4 weight-only: small weights with a scale a block, bfloat16 rows.

In: linear layers in float32, smoothed or not, and the mean square of each channel of their rows where calibration knows
it. Out: the same with blocked DequantizeLinear before the product and rows rounded to bfloat16.
Source: AWQ, Lin et al. 2023 (activation-aware: what large rows multiply is kept best).
"""

import onnx_ir as ir

from .base import Fusion, run_fusion
from .number_formats import FORMATS
from .precision import Layer, choose
from .quantize_arrays import Quantized, quantize_blocks
from .rounded_rows import round_rows
from .stored_weights import store_blocks
from .target import Target

__all__ = ["quantize_weight_only"]

WEIGHT_ONLY = tuple(name for name, one in FORMATS.items() if one.is_blocked)


def quantize_weight_only(model: ir.Model, target: Target) -> int:
    """Store the weights of every layer whose format is weight-only in blocks; returns how many layers.

    before:  MatMul(x, W)
    after:   MatMul(bf16 rows of x, bf16 of DQ(W/int4, W/int4/scale, axis=0, block_size=))

    The last block of a column is shorter where K is no multiple of the block size.
    Kept untouched: layers of other formats.
    """

    def rewrite(graph: ir.Graph, layer: Layer) -> None:
        number_format = FORMATS[target.format_of(layer.module, layer.is_head)]
        place, linear, bits = layer.place(graph), layer.linear, number_format.weight_bits
        seen = target.calibration.linears.get(layer.module)

        def compute(start: int, stop: int) -> Quantized:
            importance = None if seen is None else seen.mean_square
            return quantize_blocks(linear.columns(start, stop), bits, target.block_size, importance)

        name = f"{linear.weight.name}/int{bits}"
        weights = store_blocks(place, name, layer.shape, number_format.weight, target.block_size, compute)
        layer.put(round_rows(place, linear.x, number_format.rows), weights)

    return run_fusion(
        model, target, Fusion(lambda node: choose(node, target, WEIGHT_ONLY), lambda layer, _: layer, rewrite)
    )
