"""merge_gate_up: two projections of one input, multiplied after an activation, become one."""

from graph_text import weights
from pass_case import check_kept, check_rewrite

from paceline.passes.merge_gate_up import merge_gate_up

PROJECTIONS = weights(gate=[4, 6], up=[4, 6], gate_bias=[6], up_bias=[6])
STORED_BY_TORCH = weights(gate_weight=[6, 4], up_weight=[6, 4])


def test_gate_and_up_become_one_matmul_and_a_split() -> None:
    check_rewrite(
        merge_gate_up,
        """(float[1,T,4] x) => (float[1,T,6] h) {
            g = MatMul(x, gate)
            s = Sigmoid(g)
            a = Mul(g, s)
            u = MatMul(x, up)
            h = Mul(a, u)
        }""",
        "g+u = MatMul(x, gate+up)\ng, u = Split(g+u, [6, 6], axis=-1)\ns = Sigmoid(g)\na = Mul(g, s)\nh = Mul(a, u)",
        PROJECTIONS,
    )


def test_weights_stored_as_torch_stores_them_and_gelu_and_swapped_operands() -> None:
    check_rewrite(
        merge_gate_up,
        """(float[1,T,4] x) => (float[1,T,6] h) {
            up_t = Transpose <perm = [1, 0]> (up_weight)
            u = MatMul(x, up_t)
            gate_t = Transpose <perm = [1, 0]> (gate_weight)
            g = MatMul(x, gate_t)
            a = Gelu <approximate = "tanh"> (g)
            h = Mul(u, a)
        }""",
        "g+u = MatMul(x, gate_weight+up_weight)\n"
        "g, u = Split(g+u, [6, 6], axis=-1)\n"
        "a = Gelu(g, approximate=tanh)\n"
        "h = Mul(u, a)",
        STORED_BY_TORCH,
    )


def test_biases_are_merged_too() -> None:
    check_rewrite(
        merge_gate_up,
        """(float[1,T,4] x) => (float[1,T,6] h) {
            g0 = MatMul(x, gate)
            g = Add(g0, gate_bias)
            a = Relu(g)
            u0 = MatMul(x, up)
            u = Add(up_bias, u0)
            h = Mul(a, u)
        }""",
        "g+u/product = MatMul(x, gate+up)\n"
        "g+u = Add(g+u/product, gate_bias+up_bias)\n"
        "g, u = Split(g+u, [6, 6], axis=-1)\n"
        "a = Relu(g)\n"
        "h = Mul(a, u)",
        PROJECTIONS,
    )


def test_a_projection_of_another_input_is_kept() -> None:
    check_kept(
        merge_gate_up,
        """(float[1,T,4] x, float[1,T,4] z) => (float[1,T,6] h) {
            g = MatMul(x, gate)
            a = Relu(g)
            u = MatMul(z, up)
            h = Mul(a, u)
        }""",
        PROJECTIONS,
        "h: g reads x, u reads z: not the same input",
    )


def test_one_bias_only_is_kept() -> None:
    check_kept(
        merge_gate_up,
        """(float[1,T,4] x) => (float[1,T,6] h) {
            g0 = MatMul(x, gate)
            g = Add(g0, gate_bias)
            a = Relu(g)
            u = MatMul(x, up)
            h = Mul(a, u)
        }""",
        PROJECTIONS,
        "h: one of g and u has a bias, the other has none",
    )


def test_a_computed_weight_is_kept() -> None:
    check_kept(
        merge_gate_up,
        """(float[1,T,4] x, float[4,6] given) => (float[1,T,6] h) {
            g = MatMul(x, given)
            a = Relu(g)
            u = MatMul(x, up)
            h = Mul(a, u)
        }""",
        PROJECTIONS,
        "h: gate: the weight of g is not constant",
    )


def test_a_projection_stored_as_one_says_so() -> None:
    check_kept(
        merge_gate_up,
        """(float[1,T,4] x) => (float[1,T,6] h) {
            both = MatMul(x, gate_up)
            g, u = Split <axis = -1, num_outputs = 2> (both)
            a = Relu(g)
            h = Mul(a, u)
        }""",
        weights(gate_up=[4, 12]),
        "h: gate, up are parts of one projection already: both",
    )


def test_a_product_without_activation_is_no_candidate() -> None:
    check_kept(
        merge_gate_up,
        """(float[1,T,4] x) => (float[1,T,6] h) {
            g = MatMul(x, gate)
            u = MatMul(x, up)
            h = Mul(g, u)
        }""",
        PROJECTIONS,
        None,
    )
