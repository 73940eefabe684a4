"""Which layers bear their format worst: the order in which a gate that does not hold raises them to 16 bits.

What calibration saw of a float32 graph and the target flow in; layers with their error and what raising them costs
flow out, worst first. The error is that of one layer's products on its kept rows, as a share of their own size, so no
further run of the model is needed. Raising one layer after the other and measuring each was the alternative and lost:
a model of 30 layers has 121 linear ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from ..passes.calibration import Calibration
from ..passes.number_formats import FORMATS, HIGHER
from ..passes.precision import Layer, layers_of
from ..passes.target import Target
from .calibrate import sample_columns
from .observe_layers import Observed
from .search_smoothing import product_error

__all__ = ["Sensitivity", "rank_layers"]


@dataclass(frozen=True)
class Sensitivity:
    """One layer: squared error of its products as a share of their squares, and the bytes that raising it adds."""

    module: str
    weight_format: str
    raised_to: str
    error: float
    added_bytes: int


def rank_layers(model: ir.Model, target: Target, observed: Observed) -> list[Sensitivity]:
    """The layers of a float32 `model` that have a higher format to go to, the worst first."""
    return sorted(_measured(model, target, observed), key=lambda one: -one.error)


def _measured(model: ir.Model, target: Target, observed: Observed) -> Iterator[Sensitivity]:
    for layer in layers_of(model.graph):
        name = target.format_of(layer.module, layer.is_head)
        if name in HIGHER:
            error = _error(layer, name, target.calibration, observed, target.block_size)
            yield Sensitivity(layer.module, name, HIGHER[name], error, _added_bytes(layer, name))


def _error(layer: Layer, name: str, calibration: Calibration, observed: Observed, block: int) -> float:
    seen = calibration.linears[layer.module]
    rows, matrix = observed.rows_of(layer.module), sample_columns(layer)
    return product_error(rows, matrix, seen.smoothing, name, block, seen.largest)


def _added_bytes(layer: Layer, name: str) -> int:
    bits = FORMATS[HIGHER[name]].weight_bits - FORMATS[name].weight_bits
    return layer.shape[0] * layer.shape[1] * bits // 8
