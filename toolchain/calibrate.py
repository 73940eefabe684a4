"""From a portable float32 graph and sample text to a `Calibration`: ranges, and smoothing where a format gains by it.

What flows where: windows go through the graph once (observe_layers.py); here, layer by layer, the kept rows go through
the candidates (search_smoothing.py), and the histograms through the method that the recipe names (ranges.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..passes.calibration import CacheRange, Calibration, LinearRange
from ..passes.number_formats import FORMATS
from ..passes.precision import Layer, layers_of
from ..passes.smoothable import source_of
from ..passes.target import Target
from .errors import RecipeError
from .observe_layers import LayerSeen, Observed
from .ranges import Method
from .search_smoothing import search_smoothing

__all__ = ["CalibrationSettings", "calibrate", "check_fits", "needs_calibration", "sample_columns"]

SAMPLED_COLUMNS, SAMPLED_PIECES = 4096, 16
SMOOTHED_FORMATS = ("int8", "int8_weight_only", "int4_weight_only")


@dataclass(frozen=True)
class CalibrationSettings:
    """How a range is chosen, and whether channels are smoothed (`smoothing`: "search" or "none")."""

    method: Method = "max"
    percentile: float = 99.99
    smoothing: str = "search"


def needs_calibration(target: Target, graph: ir.Graph) -> bool:
    """Whether any layer's format, or the cache's, asks for numbers that only text can give."""
    names = {target.format_of(layer.module, layer.is_head) for layer in layers_of(graph)}
    return (
        any(name in SMOOTHED_FORMATS or FORMATS[name].is_calibrated for name in names) or "float8" in target.cache_dtype
    )


def calibrate(
    model: ir.Model,
    target: Target,
    observed: Observed,
    settings: CalibrationSettings,
    source: Mapping[str, str | int | float],
) -> Calibration:
    """What passes need to know of the float32 `model`, out of what was observed in it; `source` says on what."""
    layers = {layer.module: layer for layer in layers_of(model.graph)}
    linears = {
        module: _range(layers[module], seen, observed, target, settings) for module, seen in observed.layers.items()
    }
    caches = {
        i: CacheRange(keys.kept("max"), observed.values[i].kept("max")) for i, keys in sorted(observed.keys.items())
    }
    return Calibration(linears, caches, source).rounded()


def check_fits(calibration: Calibration, model: ir.Model) -> None:
    """Raise `RecipeError` naming a layer of `model` that `calibration` does not know, or knows in another size."""
    for layer in layers_of(model.graph):
        seen = calibration.linears.get(layer.module)
        found = "nothing" if seen is None else _misfit(seen, layer.linear.in_features)
        if found:
            raise RecipeError(
                f"calibration of {layer.module}: {found}",
                needed=f"{layer.linear.in_features} finite channels, as the layer has",
                do="calibrate this model anew: leave calibration.file out",
            )


def _misfit(seen: LinearRange, channels: int) -> str | None:
    for name, vector in (("mean_square", seen.mean_square), ("smoothing", seen.smoothing)):
        if vector is not None and vector.shape != (channels,):
            return f"{name} has shape {list(vector.shape)}"
        if vector is not None and not np.all(np.isfinite(vector)):
            return f"{name} is not finite"
    if seen.smoothing is not None and not np.all(seen.smoothing > 0):
        return "smoothing is not positive"
    return None if np.isfinite(seen.largest) and seen.largest >= 0 else f"largest is {seen.largest}"


def sample_columns(layer: Layer) -> npt.NDArray[np.float32]:
    """The layer's matrix, of a wide one some columns from all over it: a head's 50,000 would take minutes to search."""
    total = layer.linear.out_features
    if total <= SAMPLED_COLUMNS:
        return np.ascontiguousarray(layer.linear.matrix(), np.float32)
    each = SAMPLED_COLUMNS // SAMPLED_PIECES
    starts = np.linspace(0, total - each, SAMPLED_PIECES).astype(int).tolist()
    return np.concatenate([layer.linear.columns(start, start + each) for start in starts], axis=1, dtype=np.float32)


def _range(
    layer: Layer, seen: LayerSeen, observed: Observed, target: Target, settings: CalibrationSettings
) -> LinearRange:
    largest = seen.histogram.kept(settings.method, settings.percentile)
    name = target.format_of(layer.module, layer.is_head)
    source = source_of(layer.linear)
    if settings.smoothing == "none" or name not in SMOOTHED_FORMATS or isinstance(source, str):
        return LinearRange(largest, seen.mean_square)
    found = search_smoothing(
        sample_columns(layer),
        observed.rows_of(layer.module),
        seen.largest,
        source.share,
        name,
        target.block_size,
    )
    if found.vector is None:
        return LinearRange(largest, seen.mean_square)
    smoothed = np.asarray(seen.mean_square / np.square(found.vector), np.float32)
    return LinearRange(float((seen.largest / found.vector).max()), smoothed, found.vector, found.alpha)
