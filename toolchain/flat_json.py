"""JSON of any shape as one table: a dotted name for each value, so that two of them can be laid side by side.

A parsed JSON value flows in; a mapping flows out, in which a list of numbers stays one value: a scale vector is one
thing to a reader. How far two such values are apart is one number, the largest relative change.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

__all__ = ["flat_json", "largest_change"]


def flat_json(value: object, where: str = "") -> dict[str, Any]:
    """Values by dotted name; an empty object or list is a value of its own."""
    if isinstance(value, Mapping) and value:
        items: list[tuple[object, object]] = list(value.items())
    elif isinstance(value, list | tuple) and value and not _is_vector(value):
        items = list(enumerate(value))
    else:
        return {where: list(value) if isinstance(value, tuple) else value}
    found: dict[str, Any] = {}
    for key, inner in items:
        found |= flat_json(inner, f"{where}.{key}" if where else str(key))
    return found


def largest_change(first: object, second: object) -> float | None:
    """The largest |a - b| / max(|a|, |b|) over two numbers, or two vectors of one length; None for anything else."""
    if _is_number(first) and _is_number(second):
        return _change(first, second)
    if _is_vector(first) and _is_vector(second) and len(first) == len(second):
        return max((_change(a, b) for a, b in zip(first, second, strict=True)), default=0.0)
    return None


def _change(first: float, second: float) -> float:
    if first == second:
        return 0.0
    if not (math.isfinite(first) and math.isfinite(second)):
        return 1.0
    return abs(first - second) / max(abs(first), abs(second))


def _is_vector(value: object) -> TypeGuard[Sequence[float]]:
    return isinstance(value, list | tuple) and all(_is_number(one) for one in value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
