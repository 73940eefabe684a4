"""Histogram: a stream of arrays, any order, any growth, and the magnitude that each method keeps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.passes.quantize_arrays import FP8_MAX, round_fp8
from paceline.toolchain.ranges import METHODS, Histogram


def histogram_of(*arrays: np.ndarray) -> Histogram:
    histogram = Histogram()
    for array in arrays:
        histogram.add(array)
    return histogram


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=60), st.integers(1, 59))
@settings(max_examples=60, deadline=None)
def test_the_largest_is_exact_whatever_the_chunks(numbers: list[float], cut: int) -> None:
    array = np.array(numbers, np.float32)
    histogram = histogram_of(array[:cut], array[cut:])
    assert histogram.kept("max") == np.abs(array).max()
    assert histogram.counts.sum() == len(array)


def test_a_percentile_is_numpys_to_a_bin() -> None:
    numbers = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    histogram = histogram_of(*np.split(numbers, 10))
    for percentile in (90.0, 99.0, 99.99):
        assert histogram.kept("percentile", percentile) == pytest.approx(
            np.percentile(np.abs(numbers), percentile), abs=3 * histogram.top / len(histogram.counts)
        )


def test_the_squared_error_of_e4m3_is_least_where_a_search_over_the_numbers_says() -> None:
    rng = np.random.default_rng(1)
    numbers = np.concatenate([rng.standard_normal(50_000), [300.0]]).astype(np.float32)
    kept = histogram_of(numbers).kept("mse")
    errors = {
        share: np.square(round_fp8(numbers, share * 300 / FP8_MAX) - numbers).sum() for share in (1.0, kept / 300)
    }
    assert errors[kept / 300] <= errors[1.0] * 1.01


def test_entropy_cuts_a_lonely_outlier_off() -> None:
    numbers = np.concatenate([np.random.default_rng(2).standard_normal(100_000), [12.0]]).astype(np.float32)
    kept = histogram_of(numbers).kept("entropy")
    assert 3 < kept < 12


@pytest.mark.parametrize("method", METHODS)
def test_zeros_and_single_numbers_are_kept(method: str) -> None:
    assert histogram_of(np.zeros(5, np.float32)).kept(method) == 0  # type: ignore[arg-type]
    assert 0 < histogram_of(np.full(7, 2.0, np.float32)).kept(method) <= 2.0  # type: ignore[arg-type]


def test_a_number_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(ValueError, match="not finite"):
        histogram_of(np.array([1.0, np.nan], np.float32))
