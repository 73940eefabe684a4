"""merge_slices: slices that cut up a projection become one Split."""

import pytest
from pass_case import check_kept, check_rewrite

from paceline.passes.merge_slices import merge_slices

BOUNDS = {"zero": [0], "four": [4], "six": [6], "last": [-1], "one": [1], "two": [2], "end": [2**63 - 1]}


def test_three_slices_become_one_split() -> None:
    check_rewrite(
        merge_slices,
        """(float[1,T,8] x) => (float[1,T,4] y, float[1,T,2] z) {
            a = Slice(x, zero, four, two, one)
            c = Slice(x, six, end, last)
            b = Slice(x, four, six, two, one)
            y = Relu(a)
            z = Mul(b, c)
        }""",
        "a, b, c = Split(x, [4, 2, 2], axis=-1)\ny = Relu(a)\nz = Mul(b, c)",
        BOUNDS,
    )


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ("Slice(x, six, end, two, one)", "a: a ends at 4, the next part starts at 6"),
        ("Slice(x, four, six, two, one)", "a: b ends at 6, the next part starts at 8"),
        ("Slice(x, two, end, two, one)", "a: a ends at 4, the next part starts at 2"),
        ("Slice(x, four, end, two, two)", None),
        ("Slice(x, four, end, one, one)", None),
    ],
)
def test_gaps_overlaps_steps_and_other_axes_are_kept(second: str, reason: str | None) -> None:
    check_kept(
        merge_slices,
        f"""(float[1,9,8] x) => (float[N] y) {{
            a = Slice(x, zero, four, two, one)
            b = {second}
            c = Relu(a)
            d = Relu(b)
            e = Reshape(c, last)
            f = Reshape(d, last)
            y = Concat <axis = 0> (e, f)
        }}""",
        BOUNDS,
        reason,
    )
