"""recognize_rotations: rotations in any spelling become RotaryEmbedding; what only looks like one does not."""

import re

import numpy as np
import onnx_ir as ir
import pytest
from graph_text import graph, listing
from pass_case import assert_same_numbers

from paceline.passes.base import run_passes
from paceline.passes.recognize_rotations import recognize_rotations
from paceline.passes.target import Target

CONSTANTS = {
    "zero": [0],
    "one": [1],
    "two": [2],
    "three": [3],
    "four": [4],
    "end": [2**63 - 1],
    "last": [-1],
    "first_and_last": [0, 2],
    "twice": [1, 1, 1, 2],
    "repeated": [1, -1, 4],
    "joined": [1, 2, -1, 4],
    "rows_joined": [1, -1, 2, 4],
    "swap": [1, 0, 3, 2],
    "swapped": [1, 0],
    "frequencies": np.array([1.0, 0.1], np.float32),
    "unlike": np.array([1.0, 0.5, 0.1, 0.2], np.float32),
}
ANGLES = """
    p = Unsqueeze(positions, first_and_last)
    f = Cast<to = 1>(p)
    a = Mul(f, frequencies)"""
IN_PAIRS = f"""{ANGLES}
    column = Unsqueeze(a, three)
    pairs = Expand(column, twice)
    angles = Reshape(pairs, repeated)"""
IN_HALVES = f"{ANGLES} angles = Concat<axis = -1>(a, a)"
TABLES = """
    cos = Cos(angles)
    sin = Sin(angles)
    c = Unsqueeze(cos, one)
    s = Unsqueeze(sin, one)"""
EVENS_AND_ODDS = """
    even = Slice(x, zero, end, three, two)
    odd = Slice(x, one, end, three, two)"""
PAIRS = f"""{EVENS_AND_ODDS}
    minus = Neg(odd)
    left = Unsqueeze(minus, last)
    right = Unsqueeze(even, last)
    stacked = Concat<axis = -1>(left, right)
    r = Reshape(stacked, joined)"""
HALVES = """
    h1 = Slice(x, zero, two, three)
    h2 = Slice(x, two, four, three)
    minus = Neg(h1)
    r = Concat<axis = -1>(h2, minus)"""
SUM = """
    straight = Mul(x, c)
    across = Mul(r, s)
    turned = Add(straight, across)
    y = Relu(turned)"""


def model(body: str, shape: str = "1,2,T,4", x: str = "x") -> ir.Model:
    words = set(re.findall(r"\w+", body))
    used = {name: array for name, array in CONSTANTS.items() if name in words}
    return graph(f"(float[{shape}] {x}, int64[T] positions) => (float[{shape}] y) {{ {body} }}", **used)


def recognized(body: str, shape: str = "1,2,T,4") -> str:
    """The rotation's lines after the pass; the numbers stay, and a second run finds nothing."""
    after = model(body, shape)
    assert [report.count for report in run_passes(after, Target(), (recognize_rotations,) * 2)] == [1, 0]
    assert_same_numbers(model(body, shape), after)
    return listing(after)


def test_pairs() -> None:
    lines = recognized(IN_PAIRS + TABLES + PAIRS + SUM).splitlines()
    assert lines[-2].startswith("turned/rotated = RotaryEmbedding(x, ")
    assert lines[-2].endswith("interleaved=1, num_heads=2)")
    assert not any("Neg" in line for line in lines)


def test_halves_that_turn_the_other_way() -> None:
    """x2, -x1: the sine changes its sign."""
    lines = recognized(IN_HALVES + TABLES + HALVES + SUM)
    assert "interleaved=0" in lines
    assert lines.count("Neg") == 1


def test_rows_first_is_transposed_and_back() -> None:
    body = (IN_PAIRS + TABLES + PAIRS + SUM).replace("joined", "rows_joined")
    body = body.replace("c = Unsqueeze(cos, one)", "c = Unsqueeze(cos, two)")
    body = body.replace("s = Unsqueeze(sin, one)", "s = Unsqueeze(sin, two)")
    lines = recognized(body, "1,T,2,4")
    assert lines.count("Transpose") == 2


def test_a_part_of_each_head_with_the_rest_behind_it() -> None:
    body = (IN_PAIRS + TABLES + PAIRS + SUM).replace("y = Relu(turned)", "")
    body = "x = Slice(wide, zero, four, three)  rest = Slice(wide, four, end, three)" + body
    body += "  whole = Concat<axis = -1>(turned, rest)  y = Relu(whole)"
    after = model(body, "1,2,T,6", x="wide")
    assert run_passes(after, Target(), (recognize_rotations,))[0].count == 1
    assert_same_numbers(model(body, "1,2,T,6", x="wide"), after)
    assert "rotary_embedding_dim=4" in listing(after)
    assert "Concat" not in listing(after)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (IN_HALVES + TABLES + PAIRS + SUM, "has unlike columns in a pair"),
        (ANGLES.replace("frequencies", "unlike").replace("a =", "angles =") + TABLES + PAIRS + SUM, "unlike columns"),
        (IN_PAIRS + TABLES + PAIRS.replace("Neg(odd)", "Abs(odd)") + SUM, "does not turn its pairs one way"),
        (IN_PAIRS + TABLES + " r = Gather<axis = 3>(x, swap)" + SUM, "does not turn its pairs one way"),
        (IN_PAIRS + TABLES + " m = Neg(x)  r = Gather<axis = 1>(m, swapped)" + SUM, "is not x with its elements moved"),
        (
            IN_PAIRS + " shift = ReduceMean<keepdims = 1>(x)  moved = Add(angles, shift)"
            " g = Squeeze(moved, zero)" + TABLES.replace("(angles)", "(g)") + PAIRS + SUM,
            "depends on more than positions",
        ),
    ],
)
def test_what_only_looks_like_a_rotation_is_kept(body: str, reason: str) -> None:
    kept = model(body)
    before = listing(kept)
    (report,) = run_passes(kept, Target(), (recognize_rotations,))
    assert listing(kept) == before
    assert report.count == 0
    assert len(report.reasons) == 1
    assert reason in report.reasons[0]
