"""The linear ops: packing and back, kernels against NumPy and their meaning, a row's bits in any company."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_case import KernelCase, bits_of
from tolerances import TOLERANCES

from paceline.plugins.linear.pack import pack_bf16, pack_f32, pack_int8, packed_shape, quantize_int8, unpack

FORMATS = ("LinearF32", "LinearBf16", "LinearInt8", "LinearInt8Rows16")
LEVELS = {"LinearInt8": np.float32(127), "LinearInt8Rows16": np.float32(32512)}
SHAPES = ((576, 960), (100, 37), (64, 16), (1, 1), (130, 300))


def arrays_for(k: int, n: int, rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal((rows, k), np.float32),
        (rng.standard_normal((k, n)) * 0.1).astype(np.float32),
        rng.standard_normal(n).astype(np.float32),
    )


def case_of(op_type: str, weight: np.ndarray, bias: np.ndarray | None = None) -> KernelCase:
    k, n = weight.shape
    constants: dict[str, np.ndarray] = {}
    if op_type == "LinearF32":
        constants["weight"] = pack_f32(weight)
    elif op_type == "LinearBf16":
        constants["weight"] = pack_bf16(weight)
    else:
        constants["weight"], constants["scale"] = pack_int8(weight)
    if bias is not None:
        constants["bias"] = bias
    example = {"x": np.zeros((1, k), np.float32)}
    return KernelCase(op_type, {"in_features": k, "out_features": n}, constants, example)


def oracle(op_type: str, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """What is to come out, in float64 from the rounded operands."""
    if op_type == "LinearF32":
        return x.astype(np.float64) @ weight
    if op_type == "LinearBf16":
        rounded = [array.astype(ml_dtypes.bfloat16).astype(np.float64) for array in (x, weight)]
        return rounded[0] @ rounded[1]
    quantized, scale = quantize_int8(weight)
    largest = np.abs(x).max(axis=1, keepdims=True)
    levels = LEVELS[op_type]
    inverse = np.divide(levels, largest, out=np.zeros_like(largest), where=largest > 0)
    steps = np.rint(x * inverse).astype(np.int64)
    return (steps @ quantized.astype(np.int64)) * (largest / levels).astype(np.float64) * scale


@pytest.mark.parametrize("op_type", FORMATS)
@pytest.mark.parametrize(("k", "n"), SHAPES)
@pytest.mark.parametrize("has_bias", [False, True], ids=["", "bias"])
def test_kernel_and_meaning_agree_with_numpy(op_type: str, k: int, n: int, has_bias: bool) -> None:
    x, weight, bias = arrays_for(k, n, rows=9)
    expected = oracle(op_type, x, weight) + (bias if has_bias else 0)
    case = case_of(op_type, weight, bias if has_bias else None)
    for runner in (case.kernel(), case.meaning()):
        np.testing.assert_allclose(runner(x=x)[0], expected, **TOLERANCES["float32"])


@pytest.mark.parametrize("op_type", FORMATS)
def test_a_row_has_the_same_bits_in_any_number_of_rows(op_type: str) -> None:
    x, weight, bias = arrays_for(192, 88, rows=70, seed=5)
    kernel = case_of(op_type, weight, bias).kernel()
    together = kernel(x=x)[0]
    for count in (*range(1, 26), 40, 49, 70):
        for first in (0, 3, 70 - count):
            part = x[first : first + count]
            assert bits_of(kernel(x=part)[0]) == bits_of(together[first : first + len(part)]), f"{count} from {first}"


def test_int8_sums_are_exact() -> None:
    """Whole-number operands: every product and sum is an integer, so nothing may be lost."""
    rng = np.random.default_rng(6)
    x = rng.integers(-127, 128, (5, 512)).astype(np.float32)
    x[:, 0] = 127
    weight = rng.integers(-127, 128, (512, 48)).astype(np.float32)
    weight[0] = 127
    expected = x.astype(np.int64) @ weight.astype(np.int64)
    np.testing.assert_array_equal(case_of("LinearInt8", weight).kernel()(x=x)[0], expected.astype(np.float32))


@pytest.mark.parametrize("op_type", FORMATS)
def test_zeros_large_values_no_rows_and_more_axes(op_type: str) -> None:
    _, weight, _ = arrays_for(96, 40, rows=1)
    kernel = case_of(op_type, weight).kernel()
    x = np.zeros((3, 96), np.float32)
    x[1] = 1e30
    out = kernel(x=x)[0]
    np.testing.assert_array_equal(out[[0, 2]], 0)
    np.testing.assert_allclose(out[1], oracle(op_type, x, weight)[1], rtol=2e-2)
    assert kernel(x=np.zeros((0, 96), np.float32))[0].shape == (0, 40)


@pytest.mark.parametrize("op_type", FORMATS)
def test_a_weight_of_another_size_is_refused(op_type: str) -> None:
    _, weight, _ = arrays_for(96, 40, rows=1)
    case = case_of(op_type, weight)
    wrong = KernelCase(op_type, {"in_features": 96, "out_features": 400}, case.constants, case.examples)
    with pytest.raises(Exception, match=r"not packed|bias|scale|incompat"):
        wrong.kernel()(x=np.zeros((1, 96), np.float32))


@given(k=st.integers(1, 200), n=st.integers(1, 90), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_unpacking_gives_the_matrix_back(k: int, n: int, seed: int) -> None:
    weight = arrays_for(k, n, 1, seed)[1]
    assert pack_f32(weight).shape == packed_shape(k, n, 1)
    np.testing.assert_array_equal(unpack(pack_f32(weight), k, n), weight)
    np.testing.assert_array_equal(unpack(pack_bf16(weight), k, n), weight.astype(ml_dtypes.bfloat16))
    packed, scale = pack_int8(weight)
    np.testing.assert_allclose(unpack(packed, k, n) * scale, weight, atol=np.abs(weight).max() / 253)
