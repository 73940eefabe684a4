"""Small numbers and scales: error bounds, zeros, E4M3 as torch casts it, clips that never lose."""

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.passes.quantize_arrays import (
    FP8_MAX,
    dequantize_blocks,
    dequantize_columns,
    quantize_blocks,
    quantize_columns,
    round_fp8,
    round_rows_int,
)


def matrix_of(k: int, n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((k, n)) * rng.uniform(0.01, 10, n)).astype(np.float32)


@given(st.integers(1, 70), st.integers(1, 20), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_a_column_of_int8_is_off_by_half_a_step_at_most(k: int, n: int, seed: int) -> None:
    matrix = matrix_of(k, n, seed)
    quantized = quantize_columns(matrix, "int8")
    assert quantized.stored.dtype == np.int8
    assert np.abs(quantized.stored).max() == 127, "a scale that leaves room is too large"
    assert (np.abs(dequantize_columns(quantized) - matrix) <= quantized.scale * 0.5001).all()


@pytest.mark.parametrize("weight_format", ["int8", "fp8"])
def test_a_column_of_zeros_stays_zeros(weight_format: str) -> None:
    matrix = matrix_of(8, 3)
    matrix[:, 1] = 0
    quantized = quantize_columns(matrix, weight_format)
    assert quantized.scale[1] == 1
    assert not dequantize_columns(quantized)[:, 1].any()


def test_e4m3_is_torchs_cast_bit_for_bit() -> None:
    """Over all float16 numbers that are finite, and what lies between; beyond 448 the largest number stands."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    numbers = np.concatenate([halves[np.isfinite(halves)], np.random.default_rng(0).normal(0, 100, 100_000)])
    numbers = numbers.astype(np.float32)
    clamped = torch.from_numpy(numbers).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    np.testing.assert_array_equal(round_fp8(numbers, 1.0), clamped.float().numpy())
    stored = quantize_columns(numbers[:64000].reshape(-1, 64), "fp8").stored
    assert stored.dtype == ml_dtypes.float8_e4m3fn
    assert not np.isnan(stored.astype(np.float32)).any()


@given(st.integers(1, 100), st.sampled_from([32, 64, 128]), st.sampled_from([4, 8]), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_a_last_block_may_be_short(k: int, block: int, bits: int, seed: int) -> None:
    matrix = matrix_of(k, 5, seed)
    quantized = quantize_blocks(matrix, bits, block, clips=(1.0,))
    assert quantized.scale.shape == (-(-k // block), 5)
    top = 2 ** (bits - 1) - 1
    assert quantized.stored.max() <= top
    assert quantized.stored.min() >= -top - 1
    steps = np.repeat(quantized.scale, block, axis=0)[:k]
    assert (np.abs(dequantize_blocks(quantized, block) - matrix) <= steps * 0.5001).all()


def test_searching_for_clips_never_loses_and_important_rows_are_kept_best() -> None:
    matrix = matrix_of(128, 40, seed=3)
    importance = np.where(np.arange(128) % 16 == 0, 100.0, 1.0).astype(np.float32)

    def error(weights: np.ndarray, **options: object) -> float:
        found = dequantize_blocks(quantize_blocks(matrix, 4, 64, **options), 64)  # type: ignore[arg-type]
        return float((weights[:, None] * (found - matrix) ** 2).sum())

    ones = np.ones(128, np.float32)
    assert error(ones) < error(ones, clips=(1.0,))
    assert error(importance, importance=importance) < error(importance)


@pytest.mark.parametrize("levels", [127.0, 32512.0])
def test_rows_are_rounded_each_by_its_own_largest(levels: float) -> None:
    rows = matrix_of(6, 33).astype(np.float32)
    rows[2] = 0
    together = round_rows_int(rows, levels)
    assert not together[2].any()
    for number, row in enumerate(rows):
        np.testing.assert_array_equal(round_rows_int(row[None], levels)[0], together[number])
    assert (np.abs(together - rows) <= np.abs(rows).max(axis=1, keepdims=True) / levels * 0.5001).all()
