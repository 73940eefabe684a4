"""When two graphs are proved to compute the same, and when not."""

import numpy as np
from graph_text import graph

from paceline.passes.same_computation import Numbers, computation_key

WEIGHTS = {"w": np.ones((4, 4), np.float32), "v": np.full((4, 4), 2, np.float32)}
BEFORE = """
(float[T, 4] x) => (float[T, 4] y) {
    a = MatMul (x, w)
    b = MatMul (x, v)
    y = Add (a, b)
}
"""


def same(one: str, other: str) -> bool:
    numbers = Numbers()
    return computation_key(graph(one, **WEIGHTS), numbers) == computation_key(graph(other, **WEIGHTS), numbers)


def test_names_order_and_repetition_do_not_count() -> None:
    assert same(BEFORE, BEFORE.replace(" a ", " first ").replace("(a,", "(first,"))
    lines = BEFORE.splitlines()
    assert same(BEFORE, "\n".join([*lines[:2], lines[3], lines[2], *lines[4:]]))
    assert same(BEFORE, BEFORE.replace("y = Add (a, b)", "dead = Neg (a)\n    y = Add (a, b)"))
    assert same(BEFORE, BEFORE.replace("y = Add (a, b)", "again = MatMul (x, w)\n    y = Add (again, b)"))


def test_operators_inputs_attributes_and_constants_do() -> None:
    assert not same(BEFORE, BEFORE.replace("Add", "Sub"))
    assert not same(BEFORE, BEFORE.replace("Add (a, b)", "Add (b, a)"))
    assert not same(BEFORE, BEFORE.replace("(x, v)", "(x, w)"))
    swish = BEFORE.replace("Add (a, b)", "Swish <alpha = 1.0> (a)")
    assert not same(swish, swish.replace("1.0", "2.0"))


def test_large_constants_are_told_apart_by_identity() -> None:
    """Equal bytes in another tensor are not proved equal: nothing large is read."""
    large = np.zeros((4, 40), np.float32)
    text = "(float[T, 4] x) => (float[T, 40] y) { y = MatMul (x, big) }"
    numbers = Numbers()
    first, second = (computation_key(graph(text, big=large), numbers) for _ in range(2))
    model = graph(text, big=large)
    assert first != second
    assert computation_key(model, numbers) == computation_key(model.clone(), numbers)
