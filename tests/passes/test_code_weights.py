"""code_weights: bfloat16 layers get weights in 12 bits, and not one result changes."""

import ml_dtypes
import numpy as np
import pytest
from graph_text import graph, listing
from pass_case import assert_same_numbers

from paceline.passes.base import run_passes
from paceline.passes.cast_linears import cast_linears
from paceline.passes.code_weights import code_weights
from paceline.passes.fuse_gated_linear import fuse_gated_linear
from paceline.passes.lower_to_cpu import lower_to_cpu
from paceline.passes.sliced_tensor import SLICE_ELEMENTS
from paceline.passes.target import Target
from paceline.plugins.linear import coded

K, N = 70, 64
MATRIX = np.random.default_rng(0).standard_normal((K, N)).astype(np.float32)
PLAIN = f"(float[T,{K}] x) => (float[T,{N}] y) {{ product = MatMul(x, w)\n y = Add(product, b) }}"
GATED = f"(float[T,{K}] x) => (float[T,{N // 2}] y) {{ product = MatMul(x, w)\n y = paceline.SwiGLU(product) }}"
BIAS = np.random.default_rng(1).standard_normal(N).astype(np.float32)
BEFORE = (cast_linears, lower_to_cpu, fuse_gated_linear)


@pytest.mark.parametrize(("text", "op_type"), [(PLAIN, "LinearBf16Coded"), (GATED, "GatedLinearBf16Coded")])
def test_a_layer_keeps_its_numbers(text: str, op_type: str) -> None:
    constants = {"w": MATRIX} | ({"b": BIAS} if "b)" in text else {})
    plain, packed = graph(text, **constants), graph(text, **constants)
    run_passes(plain, Target(weights="bf16"), BEFORE)
    reports = run_passes(packed, Target(weights="bf16"), (*BEFORE, code_weights, code_weights))
    assert [report.count for report in reports[-2:]] == [1, 0]
    assert op_type in listing(packed)
    assert_same_numbers(plain, packed)


def test_codes_take_three_quarters() -> None:
    model = graph(PLAIN, w=MATRIX, b=BIAS)
    run_passes(model, Target(weights="bf16"), (*BEFORE, code_weights))
    codes = model.graph.initializers["w/bfloat16/packed_bf16/codes"].const_value
    assert codes is not None
    assert codes.nbytes == 128 * N * 12 // 8


def test_a_matrix_of_many_slices_has_its_escapes_in_their_places() -> None:
    k, n = 64, 2 * SLICE_ELEMENTS // 64 + 40
    rng = np.random.default_rng(2)
    matrix = rng.standard_normal((k, n)).astype(np.float32)
    matrix[:, [3, n // 2, n - 1]] *= 2.0**-60
    model = graph(f"(float[T,{k}] x) => (float[T,{n}] y) {{ y = MatMul(x, w) }}", w=matrix)
    run_passes(model, Target(weights="bf16"), (*BEFORE, code_weights))
    node = next(node for node in model.graph if node.op_type == "LinearBf16Coded")
    codes, exponents, places, values = (value.const_value.numpy() for value in node.inputs[1:5])
    assert len(places) >= 3 * k
    panels = coded.decode(codes, exponents, coded.Escapes(places, values))
    columns = panels.transpose(1, 3, 0, 2).reshape(k, -1)[:, :n]
    np.testing.assert_array_equal(columns, matrix.astype(ml_dtypes.bfloat16))


def test_a_matrix_of_all_sizes_of_numbers_is_kept() -> None:
    exponents = np.random.default_rng(3).integers(-60, 60, (K, N))
    model = graph(PLAIN, w=(MATRIX * 2.0**exponents).astype(np.float32), b=BIAS)
    *_, report = run_passes(model, Target(weights="bf16"), (*BEFORE, code_weights))
    assert report.count == 0
    assert "have another exponent than the 16 most frequent" in report.reasons[0]
    assert "LinearBf16Coded" not in listing(model)


def test_other_formats_are_no_candidates() -> None:
    model = graph(PLAIN, w=MATRIX, b=BIAS)
    *_, report = run_passes(model, Target(weights="fp32"), (*BEFORE, code_weights))
    assert (report.count, report.reasons) == (0, ())
