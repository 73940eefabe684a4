"""lower_to_cpu: linear layers become ops over packed weights, in each of the three formats."""

import ml_dtypes
import numpy as np
import pytest
from graph_text import graph, listing, weights
from pass_case import check_kept, check_rewrite, random_inputs
from tolerances import TOLERANCES

from paceline.passes.base import run_passes
from paceline.passes.cast_linears import cast_linears
from paceline.passes.compare_graphs import run_graph
from paceline.passes.lower_to_cpu import lower_to_cpu
from paceline.passes.quantize_int8 import quantize_int8
from paceline.passes.target import Target
from paceline.plugins.linear import pack

K, N = 70, 37  # neither is a whole number of panels
LINEAR = f"""(float[1,T,{K}] x) => (float[1,T,{N}] y) {{
            product = MatMul(x, w)
            y = Add(product, b)
        }}"""
WEIGHTS = weights(w=[K, N], b=[N])
OPS = {"bf16": "LinearBf16", "int8": "LinearInt8", "int8_rows16": "LinearInt8Rows16"}
LEVELS = {"int8": 127, "int8_rows16": 32512}


def test_matmul_and_bias_become_one_op() -> None:
    model = check_rewrite(
        lower_to_cpu, LINEAR, f"y = LinearF32(x, w/packed_fp32, b, in_features={K}, out_features={N})", WEIGHTS
    )
    assert set(model.graph.initializers) == {"w/packed_fp32", "b"}


@pytest.mark.parametrize("weights_format", ["bf16", "int8", "int8_rows16"])
def test_a_rounded_format_computes_what_its_rounded_operands_give(weights_format: str) -> None:
    model = graph(LINEAR.replace("1,T", "T"), **WEIGHTS)
    report = run_passes(model, Target(weights=weights_format), (cast_linears, quantize_int8, lower_to_cpu))[-1]
    inputs = {
        "bf16": "x, w/bfloat16/packed_bf16, b",
        "int8": "x, w/int8/packed_int8, w/int8/scale, b",
        "int8_rows16": "x, w/int8/packed_int8_rows16, w/int8/scale, b",
    }[weights_format]
    assert listing(model) == f"y = {OPS[weights_format]}({inputs}, in_features={K}, out_features={N})"
    assert report.count == 1
    assert run_passes(model, Target(weights=weights_format), (lower_to_cpu,))[0].count == 0
    x = random_inputs(model)["x"]
    wanted = rounded_rows(x, weights_format) @ rounded_weight(weights_format) + WEIGHTS["b"]
    np.testing.assert_allclose(run_graph(model, {"x": x})["y"], wanted, **TOLERANCES["float32"])


def rounded_rows(x: np.ndarray, weights_format: str) -> np.ndarray:
    if weights_format == "bf16":
        return x.astype(ml_dtypes.bfloat16).astype(np.float32)
    largest = np.abs(x).max(axis=-1, keepdims=True)
    levels = LEVELS[weights_format]
    return np.rint(x * (levels / largest)) * (largest / levels)


def rounded_weight(weights_format: str) -> np.ndarray:
    if weights_format == "bf16":
        return WEIGHTS["w"].astype(ml_dtypes.bfloat16).astype(np.float32)
    quantized, scale = pack.quantize_int8(WEIGHTS["w"])
    return quantized * scale


def test_a_tied_table_stays_beside_its_packed_copy() -> None:
    model = check_rewrite(
        lower_to_cpu,
        """(int64[T] ids) => (float[T,20] y) {
            x = Gather(table, ids)
            head = Transpose <perm = [1, 0]> (table)
            y = MatMul(x, head)
        }""",
        "x = Gather(table, ids)\ny = LinearF32(x, table/packed_fp32, in_features=8, out_features=20)",
        weights(table=[20, 8]),
    )
    assert set(model.graph.initializers) == {"table", "table/packed_fp32"}


def test_a_product_that_is_used_without_its_bias_keeps_the_add() -> None:
    check_rewrite(
        lower_to_cpu,
        f"""(float[1,T,{K}] x) => (float[1,T,{N}] y) {{
            product = MatMul(x, w)
            shifted = Add(product, b)
            y = Mul(product, shifted)
        }}""",
        f"product = LinearF32(x, w/packed_fp32, in_features={K}, out_features={N})\n"
        "shifted = Add(product, b)\n"
        "y = Mul(product, shifted)",
        WEIGHTS,
    )


def test_one_weight_of_two_layers_is_packed_once() -> None:
    model = check_rewrite(
        lower_to_cpu,
        f"""(float[1,T,{K}] x, float[1,T,{K}] z) => (float[1,T,{N}] y) {{
            a = MatMul(x, w)
            b2 = MatMul(z, w)
            y = Mul(a, b2)
        }}""",
        f"a = LinearF32(x, w/packed_fp32, in_features={K}, out_features={N})\n"
        f"b2 = LinearF32(z, w/packed_fp32, in_features={K}, out_features={N})\n"
        "y = Mul(a, b2)",
        WEIGHTS,
        count=2,
    )
    assert set(model.graph.initializers) == {"w/packed_fp32"}


def test_products_of_computed_values_and_stacks_of_matrices_are_kept() -> None:
    text = "(float[3,T,4] x, float[3,4,T] z) => (float[3,T,T] y) { y = MatMul(x, z) }"
    check_kept(lower_to_cpu, text, {}, "y: the weight z is not constant")
    text = "(float[3,T,4] x) => (float[3,T,5] y) { y = MatMul(x, w) }"
    check_kept(lower_to_cpu, text, weights(w=[3, 4, 5]), "y: the weight w has shape [3, 4, 5], not two axes")


def test_another_type_is_kept() -> None:
    text = "(double[T,4] x) => (double[T,5] y) { y = MatMul(x, w) }"
    wide = {"w": weights(w=[4, 5])["w"].astype(np.float64)}
    check_kept(lower_to_cpu, text, wide, "y: the rows x are DOUBLE, not FLOAT")
