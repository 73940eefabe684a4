"""split_gemm: a product with its bias becomes MatMul and Add, unless it does more than that."""

from graph_text import weights
from pass_case import check_kept, check_rewrite

from paceline.passes.split_gemm import split_gemm

WEIGHTS = weights(w=[4, 6], b=[6])


def test_a_gemm_becomes_a_product_and_a_bias() -> None:
    check_rewrite(
        split_gemm,
        "(float[T,4] x) => (float[T,6] y) { g = Gemm(x, w, b)  y = Relu(g) }",
        "g/product = MatMul(x, w)\ng/total = Add(g/product, b)\ny = Relu(g/total)",
        WEIGHTS,
    )


def test_a_stored_transpose_is_written_out_and_a_bias_may_be_missing() -> None:
    check_rewrite(
        split_gemm,
        "(float[T,6] x) => (float[T,4] y) { g = Gemm <transB = 1> (x, w)  y = Relu(g) }",
        "w/transposed = Transpose(w, perm=[1, 0])\ng/product = MatMul(x, w/transposed)\ny = Relu(g/product)",
        weights(w=[4, 6]),
    )


def test_a_graph_output_keeps_its_name() -> None:
    text = "(float[T,4] x) => (float[T,6] y) { y = Gemm(x, w, b) }"
    check_rewrite(split_gemm, text, "y/product = MatMul(x, w)\ny = Add(y/product, b)", WEIGHTS)


def test_scales_and_computed_matrices_are_kept() -> None:
    scaled = "(float[T,4] x) => (float[T,6] y) { y = Gemm <alpha = 0.5> (x, w, b) }"
    check_kept(split_gemm, scaled, WEIGHTS, "y: y scales by [0.5, 1.0] or transposes its rows")
    computed = "(float[T,4] x, float[4,6] z) => (float[T,6] y) { y = Gemm(x, z, b) }"
    check_kept(split_gemm, computed, weights(b=[6]), "y: the matrix of y is computed")
