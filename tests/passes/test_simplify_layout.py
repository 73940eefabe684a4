"""simplify_layout: Transposes that cancel and Reshapes that change nothing disappear."""

import pytest
from graph_text import weights
from pass_case import check_kept, check_rewrite

from paceline.passes.simplify_layout import simplify_layout

SHAPES = {"heads": [1, -1, 2, 4], "rows": [1, -1, 8], "copy": [0, -1, 8], "flat": [-1]}


def test_transposes_that_cancel_go_and_the_reshapes_around_them() -> None:
    check_rewrite(
        simplify_layout,
        """(float[1,T,8] x) => (float[1,T,8] y) {
            h = Reshape(x, heads)
            t = Transpose <perm = [0, 2, 1, 3]> (h)
            u = Transpose <perm = [0, 2, 1, 3]> (t)
            r = Reshape(u, rows)
            y = Relu(r)
        }""",
        "y = Relu(x)",
        SHAPES,
        count=2,
    )


def test_a_norm_between_the_transposes_stays() -> None:
    check_rewrite(
        simplify_layout,
        """(float[1,T,8] x) => (float[1,T,8] y) {
            h = Reshape(x, heads)
            t = Transpose <perm = [0, 2, 1, 3]> (h)
            n = RMSNormalization <axis = 3, epsilon = 0.001> (t, w)
            u = Transpose <perm = [0, 2, 1, 3]> (n)
            r = Reshape(u, rows)
            y = Relu(r)
        }""",
        "h = Reshape(x, [1, -1, 2, 4])\n"
        "n/rows_first = RMSNormalization(h, w, axis=3, epsilon=0.001)\n"
        "r = Reshape(n/rows_first, [1, -1, 8])\n"
        "y = Relu(r)",
        {**SHAPES, **weights(w=[4])},
    )


def test_of_two_reshapes_the_last_stays() -> None:
    check_rewrite(
        simplify_layout,
        """(float[1,T,8] x) => (float[N] y) {
            h = Reshape(x, heads)
            r = Reshape(h, flat)
            y = Relu(r)
        }""",
        "r = Reshape(x, [-1])\ny = Relu(r)",
        SHAPES,
    )


@pytest.mark.parametrize(
    ("middle", "last_perm", "reason"),
    [
        ("Transpose <perm = [0, 2, 3, 1]> (x)", "[0, 2, 1, 3]", "[0, 2, 3, 1] and [0, 2, 1, 3] do not cancel"),
        (
            "Transpose <perm = [0, 1, 3, 2]> (x)\n n = RMSNormalization(t, w)",
            "[0, 1, 3, 2]",
            "[0, 1, 3, 2] moves the axis that is normalized",
        ),
        (
            "Transpose <perm = [0, 2, 1, 3]> (x)\n n = RMSNormalization <axis = 2> (t, w)",
            "[0, 2, 1, 3]",
            "n is normalized over more than the last axis",
        ),
    ],
)
def test_transposes_that_do_not_cancel_are_kept(middle: str, last_perm: str, reason: str) -> None:
    last = "n" if "n =" in middle else "t"
    check_kept(
        simplify_layout,
        f"""(float[1,4,4,4] x) => (float[1,4,4,4] y) {{
            t = {middle}
            u = Transpose <perm = {last_perm}> ({last})
            y = Relu(u)
        }}""",
        weights(w=[4]),
        f"u: {reason}",
    )


def test_a_shape_that_copies_an_axis_is_kept() -> None:
    check_kept(
        simplify_layout,
        """(float[1,T,8] x) => (float[N,M,8] y) {
            h = Reshape(x, heads)
            r = Reshape(h, copy)
            y = Relu(r)
        }""",
        SHAPES,
        "r: the shape [0, -1, 8] copies an axis of its input",
    )


def test_a_graph_output_is_kept() -> None:
    check_kept(
        simplify_layout,
        "(float[1,T,8] x) => (float[1,T,8] y) { y = Reshape(x, rows) }",
        SHAPES,
        "y: the result is a graph output",
    )
