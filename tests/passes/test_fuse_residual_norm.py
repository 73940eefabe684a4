"""fuse_residual_norm: a sum and the norm behind it become one op with both results."""

import pytest
from graph_text import weights
from pass_case import check_kept, check_rewrite

from paceline.passes.fuse_residual_norm import fuse_residual_norm

NORM = weights(w=[8], w2=[8], m=[8, 8])


def test_sum_and_norm_become_one_and_the_sum_lives_on() -> None:
    check_rewrite(
        fuse_residual_norm,
        """(float[1,T,8] x, float[1,T,8] r) => (float[1,T,8] y) {
            total = Add(x, r)
            n = RMSNormalization <axis = -1, epsilon = 0.001> (total, w)
            h = MatMul(n, m)
            y = Mul(total, h)
        }""",
        "n, total = ResidualNorm(x, r, w, epsilon=0.001)\nh = MatMul(n, m)\ny = Mul(total, h)",
        NORM,
    )


def test_the_sum_may_be_used_before_the_norm() -> None:
    check_rewrite(
        fuse_residual_norm,
        """(float[1,T,8] x, float[1,T,8] r) => (float[1,T,8] y) {
            total = Add(x, r)
            h = MatMul(total, m)
            n = RMSNormalization (total, w)
            y = Mul(n, h)
        }""",
        "n, total = ResidualNorm(x, r, w, epsilon=1e-05)\nh = MatMul(total, m)\ny = Mul(n, h)",
        NORM,
    )


def test_of_two_norms_of_one_sum_the_first_is_fused() -> None:
    check_rewrite(
        fuse_residual_norm,
        """(float[1,T,8] x, float[1,T,8] r) => (float[1,T,8] y) {
            total = Add(x, r)
            n = RMSNormalization (total, w)
            n2 = RMSNormalization (total, w2)
            y = Mul(n, n2)
        }""",
        "n, total = ResidualNorm(x, r, w, epsilon=1e-05)\nn2 = RMSNormalization(total, w2)\ny = Mul(n, n2)",
        NORM,
    )


@pytest.mark.parametrize(
    ("inputs", "norm", "reason"),
    [
        ("float[1,T,8] r", "<axis = 1> (total, w)", "n is normalized over more than the last axis"),
        ("float[1,T,8] r", "(total, r)", "the weight of n is no initializer"),
        ("float[1,T,8] r", "(total, scalar)", "the weight scalar is FLOAT [1], not FLOAT [8]"),
        ("float[8] r", "(total, w)", "x [1,T,8] and r [8] are not known to have one shape"),
    ],
)
def test_what_the_op_cannot_do_is_kept(inputs: str, norm: str, reason: str) -> None:
    check_kept(
        fuse_residual_norm,
        f"""(float[1,T,8] x, {inputs}) => (float[1,T,8] y) {{
            total = Add(x, r)
            n = RMSNormalization {norm}
            y = Mul(total, n)
        }}""",
        {**NORM, **weights(scalar=[1])},
        f"n: {reason}",
    )


def test_a_sum_that_is_an_output_is_kept() -> None:
    check_kept(
        fuse_residual_norm,
        """(float[1,T,8] x, float[1,T,8] r) => (float[1,T,8] total, float[1,T,8] y) {
            total = Add(x, r)
            n = RMSNormalization (total, w)
            y = MatMul(n, m)
        }""",
        NORM,
        "n: the sum or the norm is a graph output",
    )


def test_a_norm_of_no_sum_is_no_candidate() -> None:
    check_kept(
        fuse_residual_norm,
        "(float[1,T,8] x) => (float[1,T,8] y) { y = RMSNormalization (x, w) }",
        NORM,
        None,
    )
