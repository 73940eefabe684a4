"""recognize_norms: a norm without a weight, and a layer norm in two parts, become operators."""

import numpy as np
from graph_text import weights
from pass_case import check_kept, check_rewrite

from paceline.passes.recognize_norms import recognize_norms

PLAIN = """(float[T,8] x) => (float[T,8] y) {{
    square = Pow(x, two)
    mean = ReduceMean <keepdims = 1> (square, {axis})
    shifted = Add(mean, epsilon)
    root = Sqrt(shifted)
    inverse = Reciprocal(root)
    n = Mul(x, inverse)
    y = Neg(n)
}}"""
CENTRED = """(float[T,8] x) => (float[T,8] y) {{
    mean = ReduceMean <keepdims = 1> ({averaged}, last)
    centred = Sub(x, mean)
    n = RMSNormalization <epsilon = 0.001> (centred, w)
    y = Neg(n)
}}"""
CONSTANTS = {"two": np.float32(2), "epsilon": np.float32(1e-3)}


def test_a_norm_without_a_weight() -> None:
    check_rewrite(
        recognize_norms,
        PLAIN.format(axis="last"),
        "n/norm = RMSNormalization(x, float32[1] * 8, axis=-1, epsilon=0.001, stash_type=1)\ny = Neg(n/norm)",
        {**CONSTANTS, "last": [-1]},
    )


def test_a_layer_norm_in_two_parts() -> None:
    check_rewrite(
        recognize_norms,
        CENTRED.format(averaged="x"),
        "n/norm = LayerNormalization(x, w, axis=-1, epsilon=0.001, stash_type=1)\ny = Neg(n/norm)",
        {**weights(w=[8]), "last": [-1]},
    )


def test_another_axis_another_mean_and_a_weight_of_two_axes_are_kept() -> None:
    check_kept(recognize_norms, PLAIN.format(axis="first"), {**CONSTANTS, "first": [0]}, None)
    other = CENTRED.format(averaged="w")
    check_kept(recognize_norms, other, {**weights(w=[8]), "last": [-1]}, None)
    text = CENTRED.format(averaged="x").replace("T,8", "T,4,8")
    reason = "n: the weight of n is no vector of 8"
    check_kept(recognize_norms, text, {**weights(w=[4, 8]), "last": [-1]}, reason)
