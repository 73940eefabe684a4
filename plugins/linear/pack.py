"""Weights into panels and back: what happens to a [K, N] matrix before it lies in an engine file.

One float32 matrix flows in, one packed array flows out; nothing is kept, so a model is packed tensor by tensor. Packing
when the engine loads was the alternative and lost: it doubles the memory and the time of every start.
"""

import numpy as np
import numpy.typing as npt
from ml_dtypes import bfloat16

from .schema import PADDED_K, PANEL_COLUMNS, padded_size

__all__ = ["pack_bf16", "pack_f32", "pack_int8", "packed_shape", "quantize_int8", "unpack"]

Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float32]


def packed_shape(k: int, n: int, group: int) -> tuple[int, ...]:
    """Shape of a packed [k, n] matrix: [panels, padded_k / group, 16(, group)]."""
    shape = (padded_size(n, PANEL_COLUMNS) // PANEL_COLUMNS, padded_size(k, PADDED_K) // group, PANEL_COLUMNS)
    return shape if group == 1 else (*shape, group)


def pack_f32(weight: Floats) -> Floats:
    """`weight` [K, N] as float32 panels."""
    return np.asarray(_packed(weight, 1), np.float32)


def pack_bf16(weight: Floats) -> Array:
    """`weight` [K, N] rounded to bfloat16 (nearest, ties to even), as panels."""
    return _packed(weight.astype(bfloat16), 2)


def quantize_int8(weight: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """`weight` [K, N] as int8 in [-127, 127] and a scale per column: weight ~ q * scale, 0 for a zero column."""
    largest = np.abs(weight).max(axis=0, initial=0.0)
    inverse = np.divide(127.0, largest, out=np.zeros_like(largest), where=largest > 0)
    return np.rint(weight * inverse).astype(np.int8), (largest / 127.0).astype(np.float32)


def pack_int8(weight: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """`weight` [K, N] as int8 panels, and the float32 scale of each column [N]."""
    quantized, scale = quantize_int8(weight)
    return np.asarray(_packed(quantized, 4), np.int8), scale


def unpack(packed: Array, k: int, n: int) -> Array:
    """The [k, n] matrix inside a packed array, in its dtype: the inverse of packing."""
    grouped = packed if packed.ndim == 4 else packed[..., None]
    panels, words, columns, group = grouped.shape
    return grouped.transpose(1, 3, 0, 2).reshape(words * group, panels * columns)[:k, :n]


def _packed(weight: Array, group: int) -> Array:
    k, n = weight.shape
    padded = np.zeros((padded_size(k, PADDED_K), padded_size(n, PANEL_COLUMNS)), weight.dtype)
    padded[:k, :n] = weight
    words = padded.reshape(padded.shape[0] // group, group, -1, PANEL_COLUMNS)
    return np.ascontiguousarray(words.transpose(2, 0, 3, 1)).reshape(packed_shape(k, n, group))
