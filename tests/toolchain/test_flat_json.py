"""JSON as a table of dotted names, and how far two values of it are apart."""

import math

import pytest

from paceline.toolchain.flat_json import flat_json, largest_change


def test_names_lead_to_values_and_vectors_stay_whole() -> None:
    value = {"a": {"b": 1, "c": [1.0, 2]}, "d": [{"e": True}, "f"], "g": [], "h": {}}
    assert flat_json(value) == {
        "a.b": 1, "a.c": [1.0, 2], "d.0.e": True, "d.1": "f", "g": [], "h": {},
    }  # fmt: skip
    assert flat_json(3) == {"": 3}
    assert flat_json({"x": (1, 2)}, "up") == {"up.x": [1, 2]}


@pytest.mark.parametrize(
    ("first", "second", "change"),
    [
        (1, 1, 0.0),
        (1.0, 2.0, 0.5),
        (-1.0, 1.0, 2.0),
        (0, 5, 1.0),
        ([1.0, 2.0, 4.0], [1.0, 2.0, 3.0], 0.25),
        ([], [], 0.0),
        (1.0, math.inf, 1.0),
        ([1.0], [1.0, 2.0], None),
        (True, 1, None),
        ("a", "b", None),
        (None, 1.0, None),
    ],
)
def test_the_largest_relative_change(first: object, second: object, change: float | None) -> None:
    assert largest_change(first, second) == change
