"""From a matrix of floats to small numbers and scales: pure arithmetic on arrays, shared by passes and searches.

A float32 matrix [K, N] flows in; the stored matrix and its float32 scales flow out, matrix ~ stored * scale. All scales
are symmetric: a zero stays a zero. Asymmetric weights lost: engines want symmetric ones.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

__all__ = [
    "FP8_MAX",
    "Quantized",
    "dequantize_blocks",
    "dequantize_columns",
    "quantize_blocks",
    "quantize_columns",
    "round_fp8",
    "round_rows_int",
]

Floats = npt.NDArray[np.float32]

FP8_MAX = 448.0  # the largest finite number of E4M3FN; OCP 8-bit floating point specification, table 2
LARGEST: Mapping[str, float] = {"int8": 127.0, "fp8": FP8_MAX}
CLIPS = tuple(1.0 - 0.05 * step for step in range(9))  # shares of a block's largest weight that a search tries


class Quantized(NamedTuple):
    """`stored` [K, N] in the small type; `scale` float32, [N] for columns and [ceil(K / block), N] for blocks."""

    stored: npt.NDArray[np.generic]
    scale: Floats


def quantize_columns(matrix: Floats, weight_format: str) -> Quantized:
    """`matrix` with one scale a column, in "int8" or "fp8": the column's largest magnitude becomes the format's.

    A column of zeros gets the scale 1.
    """
    largest = np.abs(matrix).max(axis=0, initial=0.0)
    scale = np.where(largest > 0, largest / np.float32(LARGEST[weight_format]), 1.0).astype(np.float32)
    steps = matrix / scale
    if weight_format == "fp8":
        return Quantized(_to_fp8(steps), scale)
    return Quantized(np.clip(np.rint(steps), -127, 127).astype(np.int8), scale)


def dequantize_columns(quantized: Quantized) -> Floats:
    """What `quantize_columns` stands for."""
    return np.asarray(quantized.stored.astype(np.float32) * quantized.scale, np.float32)


def quantize_blocks(
    matrix: Floats, bits: int, block: int, importance: Floats | None = None, clips: Sequence[float] = CLIPS
) -> Quantized:
    """`matrix` with one scale for each `block` rows of a column, in `bits` (4 or 8), stored in int8 either way.

    Each scale is the one of `clips` times the block's largest magnitude with the least squared error, rows weighted by
    `importance` [K] (the mean square of their inputs). The last block may be shorter.
    Source: the clipping search of AWQ, Lin et al. 2023, section 3.2, per block and weighted instead of per group of
    outputs.
    """
    k, n = matrix.shape
    num_blocks = -(-k // block)
    padded = np.zeros((num_blocks * block, n), np.float32)
    padded[:k] = matrix
    weights = np.zeros(num_blocks * block, np.float32)
    weights[:k] = 1.0 if importance is None else importance
    blocks = padded.reshape(num_blocks, block, n)
    scale = _least_error_scale(blocks, weights.reshape(num_blocks, block, 1), bits, clips)
    stored = _to_steps(blocks, scale, bits).reshape(num_blocks * block, n)[:k]
    return Quantized(stored.astype(np.int8), scale[:, 0])


def dequantize_blocks(quantized: Quantized, block: int) -> Floats:
    """What `quantize_blocks` stands for."""
    k = len(quantized.stored)
    scale = np.repeat(quantized.scale, block, axis=0)[:k]
    return np.asarray(quantized.stored.astype(np.float32) * scale, np.float32)


def round_rows_int(rows: Floats, levels: float) -> Floats:
    """`rows` [T, K] in steps of each row's largest magnitude / `levels`: what per-token activations do to them."""
    step = np.maximum(np.abs(rows).max(axis=-1, keepdims=True) / np.float32(levels), np.float32(1e-30))
    return np.asarray(np.rint(rows / step) * step, np.float32)


def round_fp8(rows: Floats, scale: float) -> Floats:
    """`rows` through E4M3 with one `scale`; what does not fit becomes the largest number."""
    return np.asarray(_to_fp8(rows / np.float32(scale)).astype(np.float32) * np.float32(scale), np.float32)


def _to_fp8(steps: Floats) -> npt.NDArray[np.generic]:
    return np.clip(steps, -FP8_MAX, FP8_MAX).astype(ml_dtypes.float8_e4m3fn)


def _least_error_scale(blocks: Floats, weights: Floats, bits: int, clips: Sequence[float]) -> Floats:
    """[num_blocks, 1, N]: for each block and column the scale with the least weighted squared error."""
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    unclipped = np.where(largest > 0, largest / np.float32(_top(bits)), 1.0).astype(np.float32)
    best, least = unclipped, np.full_like(unclipped, np.inf)
    for clip in clips if bits < 8 else clips[:1]:  # 8 bits lose more by clipping than by coarse steps
        scale = (unclipped * np.float32(clip)).astype(np.float32)
        error = (weights * (_to_steps(blocks, scale, bits) * scale - blocks) ** 2).sum(axis=1, keepdims=True)
        best = np.where(error < least, scale, best)
        least = np.minimum(error, least)
    return best


def _to_steps(blocks: Floats, scale: Floats, bits: int) -> Floats:
    top = _top(bits)
    lowest = -top - 1 if bits < 8 else -top
    return np.asarray(np.clip(np.rint(blocks / scale), lowest, top), np.float32)


def _top(bits: int) -> int:
    """The largest positive number of a signed `bits`-bit integer."""
    return int(2 ** (bits - 1) - 1)
