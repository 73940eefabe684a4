"""weights: initializers that compute their bytes when asked, and what passes may read."""

import numpy as np
import onnx_ir as ir
import pytest
from graph_text import graph, weights

from paceline.passes.weights import (
    SMALL_ELEMENTS,
    constant_of,
    derive,
    int64_constant,
    read,
    registered,
    small_constant,
    value_like,
)


def test_a_derived_initializer_computes_when_it_is_read_and_keeps_nothing() -> None:
    calls = []

    def compute() -> np.ndarray:
        calls.append(1)
        return np.arange(6, dtype=np.float32).reshape(2, 3)

    value = derive("w", ir.DataType.FLOAT, (2, 3), compute)
    assert (value.name, value.dtype, value.shape, calls) == ("w", ir.DataType.FLOAT, [2, 3], [])
    np.testing.assert_array_equal(read(value), np.arange(6, dtype=np.float32).reshape(2, 3))
    read(value)
    assert len(calls) == 2


def test_a_derived_initializer_that_lied_about_its_shape_is_found_out() -> None:
    value = derive("w", ir.DataType.FLOAT, (2, 3), lambda: np.zeros((3, 2), np.float32))
    with pytest.raises(AssertionError, match=r"w was announced as \[2, 3\] and came out as \[3, 2\]"):
        read(value)


def test_a_name_stands_for_one_initializer() -> None:
    """A packed matrix and a rounded table once wanted the same name; the second user silently got the first's bytes."""
    model = graph("(float[2] x) => (float[2] y) { y = Relu(x) }")
    first = registered(model.graph, derive("w", ir.DataType.FLOAT, (2, 3), lambda: np.zeros((2, 3), np.float32)))
    again = derive("w", ir.DataType.FLOAT, (2, 3), lambda: np.zeros((2, 3), np.float32))
    assert registered(model.graph, again) is first
    other = derive("w", ir.DataType.FLOAT, (3, 2), lambda: np.zeros((3, 2), np.float32))
    with pytest.raises(AssertionError, match="two initializers want to be w"):
        registered(model.graph, other)


def test_int64_constants_are_made_once() -> None:
    model = graph("(float[2] x) => (float[2] y) { y = Relu(x) }")
    assert int64_constant(model.graph, [-1, 4]) is int64_constant(model.graph, [-1, 4])
    assert list(model.graph.initializers) == ["int64[-1, 4]"]


def test_only_small_constants_may_decide_and_inputs_never() -> None:
    text = "(float[2] x, float[2] given) => (float[2] y) { s = Constant <value_floats = [1.0, 2.0]> () y = Add(x, s) }"
    model = graph(text, **weights(given=[2], large=[SMALL_ELEMENTS + 1]))
    node = model.graph[0]
    np.testing.assert_array_equal(small_constant(node.outputs[0]), np.array([1, 2], np.float32))
    large = model.graph.initializers["large"]
    assert constant_of(large) is not None
    assert small_constant(large) is None
    assert small_constant(None) is None
    assert constant_of(model.graph.inputs[1]) is None, "a caller may override an initializer that is an input too"


def test_value_like_replaces_the_last_axis_only() -> None:
    value = graph("(float[1,T,4] x) => (float[1,T,4] y) { y = Relu(x) }").graph.inputs[0]
    new = value_like(value, "wide", 9)
    assert (new.name, new.dtype, str(new.shape), str(value.shape)) == ("wide", ir.DataType.FLOAT, "[1,T,9]", "[1,T,4]")
