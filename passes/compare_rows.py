"""How far two graphs' observations are apart: figures for each layer and for the logits, one layer in memory at a time.

Two `Observations` flow in; a `Figures` for each name that both have flows out, over the rows that both have. What is
far enough to be wrong, tolerances.py says.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..plugins import contract
from .observe import Observations, Row

__all__ = ["Figures", "compare_observations"]

Floats = npt.NDArray[np.float64]
ROWS_AT_A_TIME = 16  # of logits, in float64
TINY = 1e-30


@dataclass(frozen=True)
class Figures:
    """Of one name. `relative`: rms of the difference over rms of the reference; `max_abs`: largest difference over the
    largest magnitude of the reference; `cosine`: of the worst row; `row`: where the largest difference is, as
    (sequence, position); `kl` in nats and `top1` as a share: of logits only. A NaN anywhere makes them infinite.
    """

    name: str
    relative: float
    max_abs: float
    cosine: float
    row: Row
    kl: float | None = None
    top1: float | None = None


def compare_observations(before: Observations, after: Observations, is_rescaled: bool = False) -> Iterator[Figures]:
    """Figures of each name, layers first.

    `is_rescaled` tells that channels of layers may have been scaled, each by one positive factor; that factor is taken
    out first. Raises: ValueError when a name has vanished or no row is left to compare.
    """
    names = sorted(before.rows, key=lambda name: (name == contract.LOGITS, len(name), name))
    missing = [name for name in names if name not in after.rows]
    if missing:
        raise ValueError(f"{', '.join(missing)} can no longer be observed")
    for name in names:
        rows = sorted(set(before.rows[name]) & set(after.rows[name]))
        if not rows:
            raise ValueError(f"no row of {name} is left to compare")
        wanted, found = (_rows(one, name, rows) for one in (before, after))
        if wanted.shape != found.shape:
            raise ValueError(f"{name} has {found.shape[1]} columns, not {wanted.shape[1]}")
        if is_rescaled and name != contract.LOGITS:
            found = found * _factors(wanted, found)
        yield _figures(name, rows, wanted, found)


def _rows(seen: Observations, name: str, rows: list[Row]) -> npt.NDArray[np.float32]:
    place = {row: index for index, row in enumerate(seen.rows[name])}
    return seen.values(name)[[place[row] for row in rows]]


def _factors(wanted: npt.NDArray[np.float32], found: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """[width]: the positive factor that brings each channel of `found` closest to `wanted`."""
    products = np.einsum("ij,ij->j", wanted, found, dtype=np.float64)
    squares = np.einsum("ij,ij->j", found, found, dtype=np.float64)
    return np.where(products > 0, products / np.maximum(squares, TINY), 1.0).astype(np.float32)


def _figures(name: str, rows: list[Row], wanted: npt.NDArray[np.float32], found: npt.NDArray[np.float32]) -> Figures:
    if not np.isfinite(found).all() or not np.isfinite(wanted).all():
        return Figures(name, np.inf, np.inf, -1.0, rows[0])
    gap = np.abs(found - wanted)
    worst = rows[int(gap.max(axis=1).argmax())]
    relative = float(np.sqrt(_mean_square(gap) / max(_mean_square(wanted), TINY)))
    max_abs = float(gap.max()) / max(float(np.abs(wanted).max()), TINY)
    kl, top1 = _of_logits(wanted, found) if name == contract.LOGITS else (None, None)
    return Figures(name, relative, max_abs, _worst_cosine(wanted, found), worst, kl, top1)


def _mean_square(array: npt.NDArray[np.float32]) -> float:
    return float(np.mean(np.square(array), dtype=np.float64))


def _worst_cosine(wanted: npt.NDArray[np.float32], found: npt.NDArray[np.float32]) -> float:
    """Sums in float64: float32 alone would be off by 1e-7."""
    products, of_wanted, of_found = (
        np.einsum("ij,ij->i", one, other, dtype=np.float64)
        for one, other in ((wanted, found), (wanted, wanted), (found, found))
    )
    return float(np.min((products + TINY) / (np.sqrt(of_wanted * of_found) + TINY)))


def _of_logits(wanted: npt.NDArray[np.float32], found: npt.NDArray[np.float32]) -> tuple[float, float]:
    """Mean KL(before || after), and the share of rows with the same likeliest token."""
    total = 0.0
    for start in range(0, len(wanted), ROWS_AT_A_TIME):
        p, q = (_log_softmax(one[start : start + ROWS_AT_A_TIME].astype(np.float64)) for one in (wanted, found))
        total += float((np.exp(p) * (p - q)).sum())
    return total / len(wanted), float(np.mean(wanted.argmax(axis=1) == found.argmax(axis=1)))


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
