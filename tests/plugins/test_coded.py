"""Weights in 12 bits: every bfloat16 comes back, and the kernels sum as they do over the weights that were coded."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_case import KernelCase, bits_of
from test_linear import case_of, coded_constants

from paceline.plugins.linear import coded
from paceline.plugins.linear.pack import pack_bf16, unpack

SIZES = {"in_features": 192, "out_features": 112}


def finite_weight(k: int, n: int, escapes: int, seed: int) -> np.ndarray:
    """A [k, n] matrix with `escapes` numbers of any size, zeros and denormals among them."""
    rng = np.random.default_rng(seed)
    weight = (rng.standard_normal((k, n)) * 0.05).astype(ml_dtypes.bfloat16)
    bits = weight.view(np.uint16).ravel()
    bits[rng.integers(0, bits.size, escapes)] = rng.integers(0, 0x4380, escapes) | rng.integers(0, 2, escapes) << 15
    return weight.astype(np.float32)


@given(panels=st.integers(1, 4), words=st.integers(1, 5), seed=st.integers(0, 999))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_bits_come_back(panels: int, words: int, seed: int) -> None:
    """All 65,536 of them may occur: NaN, infinities and denormals too."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 16, (panels, words * 4, 16, 2)).astype(np.uint16)
    bits[:, :, rng.integers(0, 16)] &= 0x3F80
    packed = bits.view(ml_dtypes.bfloat16)
    exponents = coded.choose_exponents(coded.count_exponents(packed))
    codes = coded.code(packed, exponents)
    assert codes.shape == (panels, words, coded.GROUP_BYTES)
    found = [coded.find_escapes(packed[i : i + 1], exponents, i) for i in range(panels)]
    assert bits_of(coded.decode(codes, exponents, coded.joined(found))) == bits_of(packed)


def test_the_table_has_the_most_frequent_exponents() -> None:
    counts = np.zeros(256, np.int64)
    counts[100:130] = np.arange(30)
    np.testing.assert_array_equal(coded.choose_exponents(counts), np.arange(114, 130))


@pytest.mark.parametrize("op_type", ["LinearBf16", "GatedLinearBf16"])
@pytest.mark.parametrize("rows", [1, 2, 5, 8, 9, 16, 17, 33, 70])
@pytest.mark.parametrize("escapes", [0, 1, 400])
def test_sums_have_the_bits_of_uncoded_weights(op_type: str, rows: int, escapes: int) -> None:
    k, n = (SIZES["in_features"], SIZES["out_features"]) if op_type == "LinearBf16" else (192, 448)
    weight = finite_weight(k, n, escapes, seed=rows)
    sizes = {"in_features": k, "out_features": n}
    x = np.random.default_rng(1).standard_normal((rows, k), np.float32)
    example = {"x": x[:1]}
    plain = KernelCase(op_type, sizes, {"weight": pack_bf16(weight)}, example)
    packed = KernelCase(f"{op_type}Coded", sizes, coded_constants(pack_bf16(weight)), example)
    assert bits_of(packed.kernel()(x=x)[0]) == bits_of(plain.kernel()(x=x)[0])


def test_the_meaning_decodes_zeros_denormals_and_escapes() -> None:
    """With one row that picks one weight after the other, the product is the matrix itself."""
    weight = finite_weight(64, 32, 300, seed=3)
    weight[5, :4] = [0.0, -0.0, 2.0**-133, -(2.0**-127)]
    case = case_of("LinearBf16Coded", weight)
    result = case.meaning()(x=np.eye(64, dtype=np.float32))[0]
    np.testing.assert_array_equal(result, unpack(pack_bf16(weight), 64, 32).astype(np.float32))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("escape_places", np.array([-1], np.int64)),
        ("escape_places", np.array([10**6], np.int64)),
        ("escape_places", np.array([7, 7], np.int64)),
        ("exponents", np.zeros(15, np.uint8)),
    ],
)
def test_a_damaged_code_book_is_refused(name: str, value: np.ndarray) -> None:
    case = case_of("LinearBf16Coded", finite_weight(64, 32, 0, seed=0))
    constants = {**case.constants, name: value}
    if name == "escape_places":
        constants["escape_values"] = np.ones(len(value), ml_dtypes.bfloat16)
    with pytest.raises(Exception, match=r"escapes|exponents"):
        KernelCase(case.op_type, case.attributes, constants, case.examples).kernel()
