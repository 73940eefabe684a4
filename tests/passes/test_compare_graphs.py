"""compare_graphs: says how far two graphs are apart and where, and never that different shapes are equal."""

import math

import ml_dtypes
import numpy as np
import pytest
from graph_text import graph, weights

from paceline.passes.compare_graphs import compare_graphs, run_graph

TEXT = "(float[T,4] x) => (float[T,4] y, float[T,4] z) { y = Add(x, w)  z = Relu(x) }"


def test_equal_graphs_do_not_differ() -> None:
    model = graph(TEXT, **weights(w=[4]))
    assert compare_graphs(model, graph(TEXT, **weights(w=[4])), weights(x=[3, 4])).max_abs == 0.0


def test_the_largest_difference_is_found_and_placed() -> None:
    w = weights(w=[4])["w"]
    difference = compare_graphs(graph(TEXT, w=w), graph(TEXT, w=w + np.float32([0, 0, 0.5, 0])), weights(x=[3, 4]))
    assert difference.output == "y"
    assert difference.max_abs == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("body", ["y = Concat<axis = 0>(x, x)", "y = Log(x)"])
def test_other_shapes_and_new_nans_are_infinitely_far(body: str) -> None:
    before = graph("(float[T,4] x) => (float[T,4] y) { y = Identity(x) }")
    after = graph(f"(float[T,4] x) => (float[N,4] y) {{ {body} }}")
    assert compare_graphs(before, after, {"x": -np.ones((2, 4), np.float32)}).max_abs == math.inf


def test_graphs_without_a_common_output_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="no output in common"):
        compare_graphs(
            graph("(float[T] x) => (float[T] y) { y = Abs(x) }"),
            graph("(float[T] x) => (float[T] z) { z = Abs(x) }"),
            {"x": np.ones(2, np.float32)},
        )


def test_bfloat16_comes_and_goes() -> None:
    model = graph("(bfloat16[T] x) => (bfloat16[T] y, float[T] z) { y = Identity(x)  z = Cast<to = 1>(x) }")
    x = np.array([1.0, -2.5, 3e38], ml_dtypes.bfloat16)
    found = run_graph(model, {"x": x})
    assert found["y"].dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found["y"], x)
    np.testing.assert_array_equal(found["z"], x.astype(np.float32))
