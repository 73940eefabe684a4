"""How large the numbers of a tensor are, learnt from a stream of them: what a constant scale is chosen by.

Arrays flow in, one after the other; one magnitude flows out, the largest that the scale should keep, by one of four
methods. A histogram with a growing range holds all that is needed, so no array is kept.

    max          the largest magnitude that was seen
    percentile   the magnitude that a given share of all numbers stays below
    mse          the one with the least squared error of rounding and clipping to the format
    entropy      the one whose clipped and rounded histogram is nearest to the histogram itself (Kullback-Leibler)

Source: Migacz 2017, "8-bit inference with TensorRT" (entropy); Wu et al. 2020, arXiv:2004.09602, section 4 (all four).
"""

from collections.abc import Callable
from typing import Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

__all__ = ["METHODS", "Histogram", "Method"]

Floats = npt.NDArray[np.float32]
Counts = npt.NDArray[np.float64]
Method = Literal["max", "percentile", "mse", "entropy"]
METHODS: tuple[Method, ...] = ("max", "percentile", "mse", "entropy")

BINS = 4096
CANDIDATES = tuple(1.0 - 0.01 * step for step in range(60))  # shares of the largest magnitude that a search tries
ENTROPY_LEVELS = 128  # of a symmetric 8-bit integer, on one side of zero
FP8_MAX = 448.0


class Histogram:
    """Counts of magnitudes in `BINS` bins from 0 to `top`; `top` doubles when a larger one arrives."""

    def __init__(self) -> None:
        self.top = 0.0
        self.largest = 0.0
        self.counts: Counts = np.zeros(BINS)

    def add(self, array: npt.NDArray[np.generic]) -> None:
        """Count the magnitudes of `array`. Raises: ValueError if one is not finite."""
        sizes = np.abs(np.asarray(array, np.float32)).ravel()
        if not sizes.size:
            return
        largest = float(sizes.max())
        if not np.isfinite(largest):
            raise ValueError("a number is not finite")
        self.largest = max(self.largest, largest)
        self._make_room(largest)
        if not self.top:
            self.counts[0] += sizes.size
        else:
            bins = np.minimum(sizes.astype(np.float64) / self.top * BINS, BINS - 1).astype(np.int64)
            self.counts += np.bincount(bins, minlength=BINS)

    def _make_room(self, largest: float) -> None:
        if not self.top:
            self.top = largest
        while largest > self.top:
            self.counts = np.concatenate([self.counts.reshape(-1, 2).sum(axis=1), np.zeros(BINS // 2)])
            self.top *= 2

    def kept(self, method: Method, percentile: float = 99.99) -> float:
        """The magnitude that `method` keeps; 0 for a tensor of zeros."""
        if method == "max" or not self.largest:
            return self.largest
        if method == "percentile":
            return self._percentile(percentile)
        return self._least(self._squared_error if method == "mse" else self._divergence)

    def _percentile(self, percentile: float) -> float:
        below = np.cumsum(self.counts) / self.counts.sum()
        edge = int(np.searchsorted(below, percentile / 100.0)) + 1
        return min(edge * self.top / BINS, self.largest)

    def _least(self, cost: Callable[[float], float]) -> float:
        return min((share * self.largest for share in CANDIDATES), key=cost)

    def _centers(self) -> Counts:
        return np.asarray((np.arange(BINS) + 0.5) * (self.top / BINS), np.float64)

    def _squared_error(self, kept: float) -> float:
        """Of E4M3 with the scale kept / 448, every number at its bin's middle."""
        centers, scale = self._centers(), kept / FP8_MAX
        steps = np.minimum(centers / scale, FP8_MAX).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
        return float((self.counts * (steps * scale - centers) ** 2).sum())

    def _divergence(self, kept: float) -> float:
        """Of the histogram below `kept`, what lies above added to its last bin, from the same in 128 even steps."""
        edge = max(ENTROPY_LEVELS, min(BINS, round(kept / self.top * BINS)))
        wanted = self.counts[:edge].copy()
        wanted[-1] += self.counts[edge:].sum()
        groups = np.arange(edge) * ENTROPY_LEVELS // edge
        filled = self.counts[:edge] > 0
        sums = np.bincount(groups, self.counts[:edge], ENTROPY_LEVELS)
        sizes = np.bincount(groups, filled, ENTROPY_LEVELS)
        found = np.where(filled, (sums / np.maximum(sizes, 1))[groups], 0.0)
        p, q = wanted / wanted.sum(), np.maximum(found / max(found.sum(), 1.0), 1e-12)
        return float(np.where(p > 0, p * np.log(np.maximum(p, 1e-30) / q), 0.0).sum())
