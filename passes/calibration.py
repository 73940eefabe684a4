"""What calibration knows of a model: ranges of each linear layer's rows and of its keys and values, and smoothing.

Measured by the toolchain, read by passes, written into the bundle as JSON that a person can read and a diff can show:
one line a vector, four significant digits. A table of bytes would be smaller and lost: nobody could review it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["CacheRange", "Calibration", "LinearRange", "json_from_roles", "roles_from_json"]

Floats = npt.NDArray[np.float32]
DIGITS = 4  # a scale needs no more: int8 and E4M3 have fewer


@dataclass(frozen=True)
class LinearRange:
    """Of one linear layer's rows, after smoothing.

    `largest`: the magnitude that the method chose to keep; `mean_square` [K]: of each channel; `smoothing` [K]: what
    each channel was divided by (and its weights multiplied with), None where it stays; `alpha`: how that was found.
    """

    largest: float
    mean_square: Floats
    smoothing: Floats | None = None
    alpha: float = 0.0


@dataclass(frozen=True)
class CacheRange:
    """Largest magnitudes of one layer's keys (after rotation) and values."""

    key: float
    value: float


@dataclass(frozen=True)
class Calibration:
    """All ranges, by module name and by layer number, and where they come from."""

    linears: Mapping[str, LinearRange] = field(default_factory=dict)
    caches: Mapping[int, CacheRange] = field(default_factory=dict)
    source: Mapping[str, str | int | float] = field(default_factory=dict)

    def to_json(self) -> str:
        """Canonical JSON, one line a module."""
        linears = ",\n    ".join(
            f"{json.dumps(name)}: {_linear_json(one)}" for name, one in sorted(self.linears.items())
        )
        caches = ",\n    ".join(
            f'"{layer}": {json.dumps({"key": _short(one.key), "value": _short(one.value)})}'
            for layer, one in sorted(self.caches.items())
        )
        return (
            f'{{\n  "source": {json.dumps(dict(sorted(self.source.items())))},\n'
            f'  "caches": {{\n    {caches}\n  }},\n  "linears": {{\n    {linears}\n  }}\n}}\n'
        )

    @staticmethod
    def from_json(text: str) -> "Calibration":
        """What `to_json` wrote. Raises: KeyError, TypeError, ValueError for anything else."""
        raw = json.loads(text)
        return Calibration(
            linears={name: _linear_from(one) for name, one in dict(raw["linears"]).items()},
            caches={int(layer): CacheRange(one["key"], one["value"]) for layer, one in dict(raw["caches"]).items()},
            source=raw["source"],
        )

    def rounded(self) -> "Calibration":
        """The same in the digits that are written: what a build uses, so that its file says all of it."""
        return Calibration.from_json(self.to_json())


def json_from_roles(roles: Mapping[str, Calibration]) -> str:
    """One file for all models of a bundle, by role."""
    parts = ",\n".join(f"{json.dumps(role)}: {one.to_json().rstrip()}" for role, one in sorted(roles.items()))
    return f"{{\n{parts}\n}}\n"


def roles_from_json(text: str) -> dict[str, Calibration]:
    """What `json_from_roles` wrote. Raises: KeyError, TypeError, ValueError for anything else."""
    return {role: Calibration.from_json(json.dumps(raw)) for role, raw in json.loads(text).items()}


def _linear_json(one: LinearRange) -> str:
    fields = {"largest": _short(one.largest), "alpha": _short(one.alpha), "mean_square": _list(one.mean_square)}
    if one.smoothing is not None:
        fields["smoothing"] = _list(one.smoothing)
    return json.dumps(fields)


def _linear_from(raw: Mapping[str, list[float]]) -> LinearRange:
    smoothing = raw.get("smoothing")
    return LinearRange(
        largest=float(raw["largest"]),  # type: ignore[arg-type]
        alpha=float(raw["alpha"]),  # type: ignore[arg-type]
        mean_square=np.asarray(raw["mean_square"], np.float32),
        smoothing=None if smoothing is None else np.asarray(smoothing, np.float32),
    )


def _list(values: Floats) -> list[float]:
    return [_short(value) for value in values.tolist()]


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
