"""fuse_swiglu: silu(gate) * up over the halves of one projection becomes one op."""

from graph_text import weights
from pass_case import check_kept, check_rewrite

from paceline.passes.fuse_swiglu import fuse_swiglu

GATE_UP = weights(gate_up=[4, 12])


def test_the_gate_becomes_one_op() -> None:
    check_rewrite(
        fuse_swiglu,
        """(float[1,T,4] x) => (float[1,T,4] y) {
            both = MatMul(x, gate_up)
            g, u = Split <axis = -1> (both, halves)
            s = Sigmoid(g)
            a = Mul(g, s)
            h = Mul(a, u)
            y = MatMul(h, down)
        }""",
        "both = MatMul(x, gate_up)\nh = SwiGLU(both)\ny = MatMul(h, down)",
        {**GATE_UP, **weights(down=[6, 4]), "halves": [6, 6]},
    )


def test_operands_in_the_other_order_and_a_split_by_count() -> None:
    check_rewrite(
        fuse_swiglu,
        """(float[1,T,4] x) => (float[1,T,4] y) {
            both = MatMul(x, gate_up)
            g, u = Split <axis = 2, num_outputs = 2> (both)
            s = Sigmoid(g)
            a = Mul(s, g)
            h = Mul(u, a)
            y = MatMul(h, down)
        }""",
        "both = MatMul(x, gate_up)\nh = SwiGLU(both)\ny = MatMul(h, down)",
        {**GATE_UP, **weights(down=[6, 4])},
    )


def gate_after(split: str) -> str:
    return f"""(float[1,T,4] x) => (float[1,T,4] y) {{
            both = MatMul(x, gate_up)
            {split}
            s = Sigmoid(g)
            a = Mul(g, s)
            h = Mul(a, u)
            y = MatMul(h, down)
        }}"""


def test_up_before_gate_is_kept() -> None:
    check_kept(
        fuse_swiglu,
        gate_after("u, g = Split <axis = -1, num_outputs = 2> (both)"),
        {**GATE_UP, **weights(down=[6, 4])},
        "h: g is not the first and u the second of two parts",
    )


def test_two_projections_are_kept() -> None:
    check_kept(
        fuse_swiglu,
        gate_after("g = Relu(both)\n u = MatMul(x, gate_up)"),
        {**GATE_UP, **weights(down=[12, 4])},
        "h: g and u are not the two halves of one projection",
    )


def test_a_split_along_the_rows_is_kept() -> None:
    check_kept(
        fuse_swiglu,
        gate_after("g, u = Split <axis = 1, num_outputs = 2> (both)"),
        {**GATE_UP, **weights(down=[12, 4])},
        "h: both is split along axis 1, not along the last one",
    )


def test_another_activation_is_kept() -> None:
    check_kept(
        fuse_swiglu,
        """(float[1,T,4] x) => (float[1,T,6] h) {
            both = MatMul(x, gate_up)
            g, u = Split <axis = -1, num_outputs = 2> (both)
            a = Gelu(g)
            h = Mul(a, u)
        }""",
        GATE_UP,
        "h: the gate g goes through Gelu, not SiLU",
    )
