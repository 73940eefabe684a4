"""recognize_ops: norms and rotations spelled out in small operators become the operators."""

import numpy as np
from graph_text import weights
from pass_case import check_kept, check_rewrite

from paceline.passes.recognize_ops import recognize_ops

CUTS = {"zero": [0], "one": [1], "three": [3], "half": [2], "whole": [4], "end": [2**63 - 1]}
SCALE = {"scale": np.float32(1.25)}


def test_a_norm_in_small_operators_becomes_one() -> None:
    check_rewrite(
        recognize_ops,
        """(float[1,T,8] x) => (float[1,T,8] y) {
            square = Pow(x, two)
            mean = ReduceMean <keepdims = 1, noop_with_empty_axes = 0> (square, last)
            shifted = Add(mean, epsilon)
            root = Sqrt(shifted)
            inverse = Reciprocal(root)
            n = Mul(x, inverse)
            y = Mul(n, w)
        }""",
        "y = RMSNormalization(x, w, axis=-1, epsilon=0.001, stash_type=1)",
        {**weights(w=[8]), "two": np.float32(2), "epsilon": np.float32(1e-3), "last": [-1]},
    )


def rotated(table: str, starts: str = "zero, half", cut: str = "half") -> str:
    start1, start2 = starts.split(", ")
    return f"""(float[1,2,T,4] x, float[1,T,2] angles) => (float[1,2,T,4] y) {{
            repeated = Concat <axis = -1> (angles, angles)
            {table}
            c4 = Unsqueeze(c, one)
            s4 = Unsqueeze(s, one)
            straight = Mul(x, c4)
            x1 = Slice(x, {start1}, {cut}, three, one)
            x2 = Slice(x, {start2}, end, three, one)
            minus = Neg(x2)
            turned = Concat <axis = -1> (minus, x1)
            crossed = Mul(turned, s4)
            y = Add(straight, crossed)
        }}"""


PLAIN = "c = Cos(repeated)\n s = Sin(repeated)"
SCALED = "c0 = Cos(repeated)\n c = Mul(c0, scale)\n s0 = Sin(repeated)\n s = Mul(s0, scale)"


def test_a_rotation_by_halves_becomes_one_operator() -> None:
    check_rewrite(
        recognize_ops,
        rotated(PLAIN),
        "val_0 = Cos(angles)\nval_1 = Sin(angles)\ny = RotaryEmbedding(x, val_0, val_1, interleaved=0, num_heads=2)",
        CUTS,
    )


def test_a_scaled_table_stays_scaled() -> None:
    check_rewrite(
        recognize_ops,
        rotated(SCALED),
        "val_0 = Cos(angles)\nval_1 = Mul(val_0, scale)\nval_2 = Sin(angles)\nval_3 = Mul(val_2, scale)\n"
        "y = RotaryEmbedding(x, val_1, val_3, interleaved=0, num_heads=2)",
        {**CUTS, **SCALE},
    )


def test_a_rotation_of_a_part_becomes_partial() -> None:
    check_rewrite(
        recognize_ops,
        """(float[1,2,T,4] x, float[1,T,1] c, float[1,T,1] s) => (float[1,2,T,4] y) {
            x1 = Slice(x, zero, half, three, one)
            x2 = Slice(x, half, end, three, one)
            r = RotaryEmbedding <interleaved = 0, num_heads = 2> (x1, c, s)
            y = Concat <axis = -1> (r, x2)
        }""",
        "y = RotaryEmbedding(x, c, s, interleaved=0, num_heads=2, rotary_embedding_dim=2)",
        CUTS,
    )


def test_unequal_halves_and_a_table_of_factors_are_kept() -> None:
    check_kept(recognize_ops, rotated(SCALED, starts="one, half"), {**CUTS, **SCALE}, None)
    check_kept(recognize_ops, rotated(SCALED), {**CUTS, **weights(scale=[4])}, None)
