"""JSON to dataclasses: equal where it fits, and every way in which it does not is named with its place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from paceline.runtime.typed_json import value_from_json


@dataclass(frozen=True)
class Wheel:
    spokes: int
    maker: str | None = None


@dataclass(frozen=True)
class Bike:
    wheels: tuple[Wheel, ...]
    parts: Mapping[str, Wheel]
    notes: Any = None


WHEEL = {"spokes": 32}


def test_what_fits_becomes_the_dataclass() -> None:
    bike = value_from_json(
        Bike, {"wheels": [WHEEL, {"spokes": 0, "maker": "m"}], "parts": {"spare": WHEEL}, "notes": [1]}
    )
    assert bike == Bike((Wheel(32), Wheel(0, "m")), {"spare": Wheel(32)}, [1])


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([], "the whole: list, needed dict"),
        ({"parts": {}}, "wheels: missing"),
        ({"wheels": [], "parts": {}, "bell": 1}, "bell: unknown"),
        ({"wheels": {}, "parts": {}}, "wheels: dict, needed list"),
        ({"wheels": [WHEEL, {"spokes": "32"}], "parts": {}}, r"wheels\[1\].spokes: str, needed int"),
        ({"wheels": [{"spokes": True}], "parts": {}}, r"wheels\[0\].spokes: bool, needed int"),
        ({"wheels": [{"spokes": 1.0}], "parts": {}}, r"wheels\[0\].spokes: float, needed int"),
        ({"wheels": [{"spokes": -1}], "parts": {}}, r"wheels\[0\].spokes: -1, needed 0 or more"),
        ({"wheels": [], "parts": {"a b": {"spokes": 1, "maker": 2}}}, "parts.a b.maker: int, needed str"),
        ({"wheels": [], "parts": {"x": None}}, "parts.x: NoneType, needed dict"),
    ],
)
def test_what_does_not_fit_is_named(raw: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        value_from_json(Bike, raw)
