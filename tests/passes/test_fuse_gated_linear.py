"""fuse_gated_linear: a packed projection and its SwiGLU become one op, in each format."""

import numpy as np
import pytest
from graph_text import graph, listing
from pass_case import assert_same_numbers, check_kept, check_rewrite

from paceline.passes.base import run_passes
from paceline.passes.cast_linears import cast_linears
from paceline.passes.fuse_gated_linear import fuse_gated_linear
from paceline.passes.lower_to_cpu import lower_to_cpu
from paceline.passes.quantize_int8 import quantize_int8
from paceline.passes.target import Target
from paceline.plugins.linear.pack import pack_f32

K, I = 20, 32  # noqa: E741 (the width's usual name)
SIZES = f"in_features = {K}, out_features = {2 * I}"
MATRIX = np.random.default_rng(0).standard_normal((K, 2 * I)).astype(np.float32)
PACKED = {"w": pack_f32(MATRIX)}
GATED = f"""(float[T,{K}] x) => (float[T,{I}] y) {{
            product = paceline.LinearF32 <{SIZES}> (x, w)
            y = paceline.SwiGLU(product)
        }}"""


def test_a_projection_and_its_gate_become_one_op() -> None:
    check_rewrite(fuse_gated_linear, GATED, f"y = GatedLinearF32(x, w, in_features={K}, out_features={2 * I})", PACKED)


@pytest.mark.parametrize("weights", ["fp32", "bf16", "int8", "int8_rows16"])
def test_every_format_keeps_its_numbers(weights: str) -> None:
    text = f"(float[T,{K}] x) => (float[T,{I}] y) {{ product = MatMul(x, w)\n y = paceline.SwiGLU(product) }}"
    plain, gated = graph(text, w=MATRIX), graph(text, w=MATRIX)
    run_passes(plain, Target(weights=weights), (cast_linears, quantize_int8, lower_to_cpu))
    reports = run_passes(gated, Target(weights=weights), (cast_linears, quantize_int8, lower_to_cpu, fuse_gated_linear))
    assert [report.count for report in reports[2:]] == [1, 1]
    assert "SwiGLU" not in listing(gated)
    assert_same_numbers(plain, gated)


def test_a_projection_with_another_reader_is_kept() -> None:
    text = GATED.replace("(float[T,32] y)", "(float[T,32] y, float[T,64] product)")
    check_kept(fuse_gated_linear, text, PACKED, "y: product has other readers than the SwiGLU")


def test_a_projection_with_a_bias_is_kept() -> None:
    weights = {**PACKED, "b": np.zeros(2 * I, np.float32)}
    text = GATED.replace("(x, w)", "(x, w, b)")
    check_kept(fuse_gated_linear, text, weights, "y: the projection product has a bias")


def test_halves_that_are_no_whole_panels_are_kept() -> None:
    text = GATED.replace(f"out_features = {2 * I}", "out_features = 48").replace("float[T,32] y", "float[T,24] y")
    packed = {"w": pack_f32(MATRIX[:, :48])}
    check_kept(fuse_gated_linear, text, packed, "y: 48 columns are not two halves of whole panels of 16")


def test_a_gate_over_something_else_is_no_candidate() -> None:
    check_kept(fuse_gated_linear, "(float[T,64] x) => (float[T,32] y) { y = paceline.SwiGLU(x) }", {}, None)
