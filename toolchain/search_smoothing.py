"""How much of each channel's size to move from a layer's rows into its weights: tried out, layer by layer.

A layer's matrix, some of its rows and its format flow in; the vector whose products come nearest to the exact ones
flows out, or None where leaving all as it is comes nearest. The exact product is the judge; formulas only propose.

    int8            s = max|x| ^ alpha / max|w| ^ (1 - alpha)          SmoothQuant, Xiao et al. 2022, equation 4
    weight-only     s = rms(x) ^ alpha                                  AWQ, Lin et al. 2023, equation 5
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..passes.number_formats import FORMATS
from ..passes.quantize_arrays import (
    FP8_MAX,
    dequantize_blocks,
    dequantize_columns,
    quantize_blocks,
    quantize_columns,
    round_fp8,
    round_rows_int,
)

__all__ = ["Smoothing", "product_error", "search_smoothing"]

Floats = npt.NDArray[np.float32]
ALPHAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
ROW_LEVELS = {"int8": 127.0, "int8_rows16": 32512.0}
SMALLEST = np.float32(1e-5)


class Smoothing(NamedTuple):
    """`vector` [K] divides the channels; `error` is the squared error of the products as a share of their squares."""

    alpha: float
    vector: Floats | None
    error: float


def search_smoothing(
    matrix: Floats, rows: Floats, largest: Floats, share: Callable[[Floats], Floats], weight_format: str, block: int
) -> Smoothing:
    """The best of all candidates for a layer [K, N], judged on `rows` [n, K]; `largest` [K] is each channel's.

    `share` makes a vector one that the rows' source can take (see passes/smoothable.py).
    """
    candidates = [
        (0.0, None),
        *((alpha, share(_proposal(matrix, rows, largest, weight_format, alpha))) for alpha in ALPHAS),
    ]
    tried = [
        Smoothing(alpha, vector, product_error(rows, matrix, vector, weight_format, block))
        for alpha, vector in candidates
    ]
    return min(tried, key=lambda one: one.error)


def product_error(
    rows: Floats, matrix: Floats, vector: Floats | None, weight_format: str, block: int, largest: float = 0.0
) -> float:
    """Squared error of the products of smoothed rows and weights in their format, as a share of the products' squares.

    `largest` is the magnitude that fp8's constant scale keeps; other formats find their own. Blocks are not clipped.
    """
    exact = rows @ matrix
    power = float(np.square(exact, dtype=np.float64).sum()) or 1.0
    if vector is not None:
        rows, matrix = rows / vector, matrix * vector[:, None]
    found = _product(rows, matrix, weight_format, block, largest)
    return float(np.square(found - exact, dtype=np.float64).sum()) / power


def _product(rows: Floats, matrix: Floats, weight_format: str, block: int, largest: float) -> Floats:
    if weight_format in ROW_LEVELS:
        return round_rows_int(rows, ROW_LEVELS[weight_format]) @ dequantize_columns(quantize_columns(matrix, "int8"))
    if weight_format == "fp8":
        return round_fp8(rows, max(largest, 1e-30) / FP8_MAX) @ dequantize_columns(quantize_columns(matrix, "fp8"))
    bits = FORMATS[weight_format].weight_bits
    return rows @ dequantize_blocks(quantize_blocks(matrix, bits, block, clips=(1.0,)), block)


def _proposal(matrix: Floats, rows: Floats, largest: Floats, weight_format: str, alpha: float) -> Floats:
    if weight_format in ROW_LEVELS:
        weights = np.abs(matrix).max(axis=1)
        vector = np.maximum(largest, SMALLEST) ** alpha / np.maximum(weights, SMALLEST) ** (1 - alpha)
    else:
        vector = np.maximum(np.sqrt(np.square(rows).mean(axis=0)), SMALLEST) ** alpha
    vector = vector / np.sqrt(vector.max() * vector.min())
    return np.asarray([float(f"{value:.4g}") for value in vector.tolist()], np.float32)
