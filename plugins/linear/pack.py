"""Weights into panels and back: what happens to a [K, N] matrix before it lies in an engine file.

One float32 matrix flows in, one packed array flows out; nothing is kept, so a model is packed tensor by tensor. Packing
when the engine loads was the alternative and lost: it doubles the memory and the time of every start.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from ml_dtypes import bfloat16

from .schema import PADDED_K, PANEL_COLUMNS, padded_size

__all__ = ["int8_scales", "pack_bf16", "pack_f32", "pack_int8", "pack_steps", "packed_shape", "quantize_int8", "unpack"]

Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float32]

CHUNK_PANELS = 64  # columns that are converted at a time: a few megabytes


def packed_shape(k: int, n: int, group: int) -> tuple[int, ...]:
    """Shape of a packed [k, n] matrix: [panels, padded_k / group, 16(, group)]."""
    shape = (padded_size(n, PANEL_COLUMNS) // PANEL_COLUMNS, padded_size(k, PADDED_K) // group, PANEL_COLUMNS)
    return shape if group == 1 else (*shape, group)


def pack_f32(weight: Floats) -> Floats:
    """`weight` [K, N] as float32 panels."""
    return np.asarray(_packed(weight, 1, np.dtype(np.float32), lambda columns: columns), np.float32)


def pack_bf16(weight: Floats) -> Array:
    """`weight` [K, N] rounded to bfloat16 (nearest, ties to even), as panels."""
    return _packed(weight, 2, np.dtype(bfloat16), lambda columns: columns.astype(bfloat16))


def int8_scales(weight: Floats) -> Floats:
    """One scale per column of `weight` [K, N]: the largest magnitude / 127, 0 for a zero column."""
    return np.asarray(_largest(weight) / 127.0, np.float32)


def quantize_int8(weight: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """`weight` [K, N] as int8 in [-127, 127] and the scale of each column: weight ~ q * scale."""
    largest = _largest(weight)
    inverse = np.divide(127.0, largest, out=np.zeros_like(largest), where=largest > 0)
    return np.rint(weight * inverse).astype(np.int8), int8_scales(weight)


def _largest(weight: Floats) -> Floats:
    """The largest magnitude of each column; no copy of the matrix, as np.abs would make one."""
    return np.asarray(np.maximum(weight.max(axis=0, initial=0.0), -weight.min(axis=0, initial=0.0)), np.float32)


def pack_int8(weight: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """`weight` [K, N] as int8 panels, and the float32 scale of each column [N]."""
    packed = _packed(weight, 4, np.dtype(np.int8), lambda columns: quantize_int8(columns)[0])
    return np.asarray(packed, np.int8), int8_scales(weight)


def pack_steps(steps: Floats) -> npt.NDArray[np.int8]:
    """`steps` [K, N], whole numbers of int8's range, as int8 panels."""
    return np.asarray(_packed(steps, 4, np.dtype(np.int8), lambda columns: columns.astype(np.int8)), np.int8)


def unpack(packed: Array, k: int, n: int) -> Array:
    """The [k, n] matrix inside a packed array, in its dtype: the inverse of packing."""
    grouped = packed if packed.ndim == 4 else packed[..., None]
    panels, words, columns, group = grouped.shape
    return grouped.transpose(1, 3, 0, 2).reshape(words * group, panels * columns)[:k, :n]


def _packed(weight: Floats, group: int, dtype: np.dtype[Any], convert: Callable[[Floats], Array]) -> Array:
    """Panels of `convert(columns)`, some columns at a time: a head of 28 million weights needs no copies of itself."""
    k, n = weight.shape
    packed = np.zeros(packed_shape(k, n, group), dtype).reshape(
        -1, padded_size(k, PADDED_K) // group, PANEL_COLUMNS, group
    )
    for first in range(0, len(packed), CHUNK_PANELS):
        columns = weight[:, first * PANEL_COLUMNS : (first + CHUNK_PANELS) * PANEL_COLUMNS]
        panels = padded_size(columns.shape[1], PANEL_COLUMNS) // PANEL_COLUMNS
        padded = np.zeros((padded_size(k, PADDED_K), panels * PANEL_COLUMNS), dtype)
        padded[:k, : columns.shape[1]] = convert(columns)
        words = padded.reshape(-1, group, panels, PANEL_COLUMNS)
        packed[first : first + panels] = words.transpose(2, 0, 3, 1)
    return packed.reshape(packed_shape(k, n, group))
