"""Linear layers in 16 bits: rows and weights rounded to bfloat16 or float16, sums in float32.

In: linear layers in float32. Out: the same with the rounding in the graph, weights stored in 16 bits. Leaving it to an
engine's flag was the alternative and lost: what a graph does not say, nobody can verify.
"""

import onnx_ir as ir

from .base import Fusion, run_fusion
from .number_formats import FORMATS
from .precision import Layer, choose
from .rounded_rows import round_rows
from .stored_weights import store_16_bits
from .target import Target

__all__ = ["cast_linears"]


def cast_linears(model: ir.Model, target: Target) -> int:
    """Round the rows and weights of every layer whose format is bf16 or fp16; returns how many layers.

    before:  MatMul(x, W)
    after:   MatMul(Cast(Cast(x, 16 bits), FLOAT), Cast(W/bfloat16, FLOAT))

    A matrix under a Transpose, shared with the embedding, stays under it.
    Kept untouched: layers of other formats.
    """

    def rewrite(graph: ir.Graph, layer: Layer) -> None:
        dtype = FORMATS[target.format_of(layer.module, layer.is_head)].weight
        place = layer.place(graph)
        weights = store_16_bits(place, layer.linear, dtype)
        layer.put(round_rows(place, layer.linear.x, dtype), weights)

    return run_fusion(
        model, target, Fusion(lambda node: choose(node, target, ("bf16", "fp16")), lambda layer, _: layer, rewrite)
    )
