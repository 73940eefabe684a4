"""Calibration as text: nothing is lost but digits, and the text says all that a build uses."""

import json

import numpy as np
import pytest

from paceline.passes.calibration import CacheRange, Calibration, LinearRange, json_from_roles, roles_from_json


def example() -> Calibration:
    rng = np.random.default_rng(0)
    vector = rng.uniform(0.1, 10, 5).astype(np.float32)
    return Calibration(
        {"b": LinearRange(3.14159265, vector, vector, 0.5), "a": LinearRange(1e-7, vector)},
        {1: CacheRange(12.3456, 0.5), 0: CacheRange(1.0, 2.0)},
        {"dataset": "calibration", "tokens": 5},
    )


def test_what_is_read_back_is_what_was_written() -> None:
    text = example().to_json()
    again = Calibration.from_json(text)
    assert again.to_json() == text
    assert again.linears["b"].largest == 3.142
    np.testing.assert_allclose(again.linears["b"].smoothing, example().linears["b"].smoothing, rtol=1e-3)  # type: ignore[arg-type]
    assert again.linears["a"].smoothing is None
    assert again.caches[1] == CacheRange(12.35, 0.5)


def test_a_line_is_a_module_so_that_a_diff_shows_it() -> None:
    lines = example().to_json().splitlines()
    assert sum('"mean_square"' in line for line in lines) == 2
    assert [line.strip()[:3] for line in lines if "largest" in line] == ['"a"', '"b"']


def test_a_build_uses_the_digits_that_it_writes() -> None:
    rounded = example().rounded()
    assert rounded.to_json() == example().to_json()
    np.testing.assert_array_equal(rounded.linears["a"].mean_square, rounded.rounded().linears["a"].mean_square)


def test_roles_share_a_file() -> None:
    text = json_from_roles({"target": example(), "draft": Calibration()})
    assert set(json.loads(text)) == {"draft", "target"}
    assert roles_from_json(text)["target"].to_json() == example().to_json()
    with pytest.raises((KeyError, TypeError, ValueError)):
        roles_from_json('{"target": {"linears": 3}}')
