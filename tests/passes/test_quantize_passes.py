"""cast_linears, quantize_int8, quantize_fp8, quantize_weight_only: what stands in the graph, and what it computes."""

import ml_dtypes
import numpy as np
import pytest
from graph_text import graph, listing, weights
from pass_case import random_inputs
from tolerances import TOLERANCES

from paceline.passes.base import Pass, run_passes
from paceline.passes.calibration import Calibration, LinearRange
from paceline.passes.cast_linears import cast_linears
from paceline.passes.compare_graphs import run_graph
from paceline.passes.lower_to_cpu import lower_to_cpu
from paceline.passes.quantize_arrays import (
    dequantize_blocks,
    dequantize_columns,
    quantize_blocks,
    quantize_columns,
    round_fp8,
    round_rows_int,
)
from paceline.passes.quantize_fp8 import quantize_fp8
from paceline.passes.quantize_int8 import quantize_int8
from paceline.passes.quantize_weight_only import quantize_weight_only
from paceline.passes.target import Target

K, N, BLOCK = 70, 37, 32
LINEAR = f"""(float[T,{K}] x) => (float[T,{N}] y) {{
            product = MatMul(x, w)
            y = Add(product, b)
        }}"""
WEIGHTS = weights(w=[K, N], b=[N])
LARGEST = 2.5  # smaller than some of x: what does not fit is clipped
SEEN = Calibration({"w": LinearRange(LARGEST, np.ones(K, np.float32))})

CASES: dict[str, tuple[Pass, str]] = {
    "bf16": (
        cast_linears,
        "y/weights = Cast(w/bfloat16, to=1)\n"
        "y/rounded = Cast(x, to=16)\n"
        "y/rows = Cast(y/rounded, to=1)\n"
        "product = MatMul(y/rows, y/weights)\n"
        "y = Add(product, b)",
    ),
    "int8": (
        quantize_int8,
        "y/weights = DequantizeLinear(w/int8, w/int8/scale, axis=1)\n"
        "y/sizes = Abs(x)\n"
        "y/largest = ReduceMax(y/sizes, [-1], keepdims=0)\n"
        "y/step = Div(y/largest, levels_int8)\n"
        "y/safe_step = Max(y/step, least_step)\n"
        "y/quantized = QuantizeLinear(x, y/safe_step, axis=0, output_dtype=3)\n"
        "y/rows = DequantizeLinear(y/quantized, y/safe_step, axis=0)\n"
        "product = MatMul(y/rows, y/weights)\n"
        "y = Add(product, b)",
    ),
    "fp8": (
        quantize_fp8,
        "y/weights = DequantizeLinear(w/fp8, w/fp8/scale, axis=1)\n"
        "y/quantized = QuantizeLinear(x, y/scale, output_dtype=17)\n"
        "y/rows = DequantizeLinear(y/quantized, y/scale)\n"
        "product = MatMul(y/rows, y/weights)\n"
        "y = Add(product, b)",
    ),
    "int4_weight_only": (
        quantize_weight_only,
        f"y/dequantized = DequantizeLinear(w/int4, w/int4/scale, axis=0, block_size={BLOCK})\n"
        "y/weights_16 = Cast(y/dequantized, to=16)\n"
        "y/weights = Cast(y/weights_16, to=1)\n"
        "y/rounded = Cast(x, to=16)\n"
        "y/rows = Cast(y/rounded, to=1)\n"
        "product = MatMul(y/rows, y/weights)\n"
        "y = Add(product, b)",
    ),
}
CASES["fp16"] = (cast_linears, CASES["bf16"][1].replace("bfloat16", "float16").replace("to=16", "to=10"))
CASES["int8_rows16"] = (
    quantize_int8,
    CASES["int8"][1].replace("levels_int8", "levels_int16").replace("output_dtype=3", "output_dtype=5"),
)
CASES["int8_weight_only"] = (quantize_weight_only, CASES["int4_weight_only"][1].replace("int4", "int8"))


def target_for(name: str) -> Target:
    return Target(weights=name, block_size=BLOCK, calibration=SEEN)


def rounded(x: np.ndarray, name: str) -> np.ndarray:
    """The rows as the format has them."""
    if name in ("int8", "int8_rows16"):
        return round_rows_int(x, {"int8": 127.0, "int8_rows16": 32512.0}[name])
    if name == "fp8":
        return round_fp8(x, LARGEST / 448.0)
    return x.astype(np.float16 if name == "fp16" else ml_dtypes.bfloat16).astype(np.float32)


def stored(matrix: np.ndarray, name: str) -> np.ndarray:
    """The weights as the format has them."""
    if name in ("int8", "int8_rows16", "fp8"):
        return dequantize_columns(quantize_columns(matrix, "fp8" if name == "fp8" else "int8"))
    if name.endswith("weight_only"):
        exact = dequantize_blocks(quantize_blocks(matrix, int(name[3]), BLOCK, np.ones(K, np.float32)), BLOCK)
        return exact.astype(ml_dtypes.bfloat16).astype(np.float32)
    return matrix.astype(np.float16 if name == "fp16" else ml_dtypes.bfloat16).astype(np.float32)


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_graph_says_the_format_and_computes_it(name: str) -> None:
    one_pass, expected = CASES[name]
    model = graph(LINEAR, **WEIGHTS)
    (report,) = run_passes(model, target_for(name), (one_pass,))
    assert listing(model) == expected
    assert report.count == 1
    assert run_passes(model, target_for(name), (one_pass,))[0].count == 0
    x = random_inputs(model)["x"]
    wanted = rounded(x, name) @ stored(WEIGHTS["w"], name) + WEIGHTS["b"]
    np.testing.assert_allclose(run_graph(model, {"x": x})["y"], wanted, **TOLERANCES["float32"])


@pytest.mark.parametrize("name", sorted(CASES))
def test_lowered_to_the_cpu_it_computes_the_same(name: str) -> None:
    portable, lowered = graph(LINEAR, **WEIGHTS), graph(LINEAR, **WEIGHTS)
    run_passes(portable, target_for(name), (CASES[name][0],))
    run_passes(lowered, target_for(name), (CASES[name][0], lower_to_cpu))
    assert "MatMul" not in listing(lowered)
    x = random_inputs(portable)["x"]
    found, wanted = (run_graph(model, {"x": x})["y"] for model in (lowered, portable))
    np.testing.assert_allclose(found, wanted, **TOLERANCES["float32"])


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_pass_leaves_other_formats_alone(name: str) -> None:
    model = graph(LINEAR, **WEIGHTS)
    others = {one_pass for one_pass, _ in CASES.values()} - {CASES[name][0]}
    assert {report.count for report in run_passes(model, target_for(name), tuple(others))} == {0}


def test_fp8_without_a_range_is_left_alone_and_says_so() -> None:
    model = graph(LINEAR, **WEIGHTS)
    (report,) = run_passes(model, Target(weights="fp8"), (quantize_fp8,))
    assert report.reasons == ("product: calibration knows no range of w",)


def test_int8_needs_an_axis_of_rows() -> None:
    model = graph(LINEAR.replace("[T,", "[1,T,"), **WEIGHTS)
    (report,) = run_passes(model, Target(weights="int8"), (quantize_int8,))
    assert report.count == 0
    assert report.reasons == (f"product: x is [1,T,{K}], not [T, K]: there is no axis of rows",)


def test_patterns_and_the_head_have_formats_of_their_own() -> None:
    target = Target(weights="int8", head="bf16", keep=(("*.down", "fp16"), ("layers.0.*", "fp8")))
    assert target.format_of("layers.0.down", is_head=False) == "fp16"
    assert target.format_of("layers.0.up", is_head=False) == "fp8"
    assert target.format_of("layers.1.up", is_head=False) == "int8"
    assert target.format_of("lm_head", is_head=True) == "bf16"
