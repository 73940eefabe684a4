"""eliminate_duplicates: equal nodes and equal small initializers are computed and kept once."""

from graph_text import weights
from pass_case import check_kept, check_rewrite

from paceline.passes.eliminate_duplicates import eliminate_duplicates


def test_the_cos_of_every_layer_becomes_one() -> None:
    check_rewrite(
        eliminate_duplicates,
        """(float[1,T,4] angles) => (float[1,T,4] y) {
            c1 = Cos(angles)
            s1 = Sin(angles)
            a = Mul(c1, s1)
            c2 = Cos(angles)
            s2 = Sin(angles)
            b = Mul(c2, s2)
            y = Add(a, b)
        }""",
        "c1 = Cos(angles)\ns1 = Sin(angles)\na = Mul(c1, s1)\ny = Add(a, a)",
        {},
        count=3,
    )


def test_equal_shapes_become_one_and_then_the_nodes_that_use_them() -> None:
    check_rewrite(
        eliminate_duplicates,
        """(float[1,T,4] x) => (float[N,4] y) {
            a = Reshape(x, shape1)
            b = Reshape(x, shape2)
            y = Add(a, b)
        }""",
        "a = Reshape(x, [-1, 4])\ny = Add(a, a)",
        {"shape1": [-1, 4], "shape2": [-1, 4]},
        count=2,
    )


def test_other_inputs_attributes_and_large_initializers_are_kept() -> None:
    large = weights(m=[4, 400])["m"]
    check_kept(
        eliminate_duplicates,
        """(float[1,T,4] x) => (float[1,T,400] y) {
            a = Softmax <axis = 1> (x)
            b = Softmax <axis = 2> (x)
            c = MatMul(a, m1)
            d = MatMul(b, m2)
            y = Add(c, d)
        }""",
        {"m1": large, "m2": large},
        None,
    )
