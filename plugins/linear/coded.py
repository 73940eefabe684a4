"""bfloat16 weights in 12 bits: packed panels into codes and back, bit for bit.

Panels of bfloat16 flow in, and for a whole matrix how often it has each exponent; codes and escapes flow out, some
panels at a time. coded.h describes the layout and says why exponents are worth a table and no Huffman tree.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from ml_dtypes import bfloat16

__all__ = [
    "GROUP_BYTES",
    "GROUP_WORDS",
    "Escapes",
    "choose_exponents",
    "code",
    "count_exponents",
    "decode",
    "find_escapes",
    "joined",
]

Array = npt.NDArray[np.generic]
Bytes = npt.NDArray[np.uint8]

GROUP_WORDS = 4  # words of a panel that are coded together: 128 weights
GROUP_BYTES = 192
TABLE = 16


@dataclass(frozen=True)
class Escapes:
    """Weights whose exponent is not in the table: places in the packed matrix, ascending, and values (bfloat16)."""

    places: npt.NDArray[np.int64]
    values: Array


def count_exponents(panels: Array) -> npt.NDArray[np.int64]:
    """How often each of the 256 exponents occurs in bfloat16 `panels`."""
    return np.bincount(_exponents(panels).ravel(), minlength=256).astype(np.int64)


def choose_exponents(counts: npt.NDArray[np.int64]) -> Bytes:
    """The 16 most frequent exponents, ascending."""
    return np.sort(np.argsort(-counts, kind="stable")[:TABLE]).astype(np.uint8)


def code(panels: Array, exponents: Bytes) -> Bytes:
    """Codes [panels, words / 4, 192] of bfloat16 `panels` [panels, words, 16, 2]; an escape gets the code 0."""
    bits = _bits(panels).reshape(len(panels), -1, GROUP_WORDS, 32)
    signs, mantissas = (bits >> 8 & 0x80).astype(np.uint8), (bits & 0x7F).astype(np.uint8)
    numbers = np.zeros(256, np.uint8)
    numbers[exponents] = np.arange(TABLE)
    codes = numbers[_exponents(bits)]
    first, second = signs[:, :, 1::2] | mantissas[:, :, 0::2], signs[:, :, 0::2] | mantissas[:, :, 1::2]
    halves = codes[:, :, :2] | codes[:, :, 2:] << 4  # [panels, groups, (A and C, B and D), 32]
    pairs = np.stack([first, second], axis=-1)  # [panels, groups, (A and B, C and D), 32, byte]
    parts = [pairs.reshape(*bits.shape[:2], -1), halves.swapaxes(2, 3).reshape(*bits.shape[:2], -1)]
    return np.concatenate(parts, axis=2)


def find_escapes(panels: Array, exponents: Bytes, first_panel: int) -> Escapes:
    """The weights of `panels` that are not in the table, and the matrix's first; `first_panel` counts from there."""
    known = np.zeros(256, bool)
    known[exponents] = True
    known_places = known[_exponents(panels)].ravel()
    if first_panel == 0 and known_places.size:
        known_places[0] = False  # one escape at least: an engine file has no empty tensors
    places = np.flatnonzero(~known_places)
    values = _bits(panels).ravel()[places].view(bfloat16)
    return Escapes(places.astype(np.int64) + first_panel * (panels.size // max(1, len(panels))), values)


def decode(codes: Bytes, exponents: Bytes, escapes: Escapes) -> Array:
    """The bfloat16 panels [panels, words, 16, 2] again."""
    shape = codes.shape[:2]
    pairs = codes[:, :, :128].reshape(*shape, 2, 32, 2)
    halves = codes[:, :, 128:].reshape(*shape, 32, 2)
    numbers = np.stack([halves & 15, halves >> 4], axis=2)  # [panels, groups, pair, 32, word of the pair]
    signs = pairs[..., ::-1].astype(np.uint16) >> 7 << 15
    bits = signs | exponents[numbers].astype(np.uint16) << 7 | (pairs & 0x7F)
    bits = bits.swapaxes(3, 4).reshape(shape[0], shape[1] * GROUP_WORDS, 16, 2).astype(np.uint16)
    bits.ravel()[escapes.places] = escapes.values.view(np.uint16)
    return bits.view(bfloat16)


def joined(parts: Iterable[Escapes]) -> Escapes:
    """Escapes of neighbouring ranges of panels, one behind the other."""
    found = tuple(parts)
    return Escapes(np.concatenate([one.places for one in found]), np.concatenate([one.values for one in found]))


def _bits(panels: Array) -> npt.NDArray[np.uint16]:
    return np.ascontiguousarray(panels).view(np.uint16)


def _exponents(panels: Array) -> Bytes:
    return (_bits(panels) >> 7 & 0xFF).astype(np.uint8)
