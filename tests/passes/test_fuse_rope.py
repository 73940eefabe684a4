"""fuse_rope: the attention op takes the cos and sin table and rotates q and k itself."""

import pytest
from graph_text import weights
from pass_case import check_kept, check_rewrite

from paceline.passes.fuse_rope import fuse_rope

SHAPES = {"q_heads": [1, -1, 2, 4], "k_heads": [1, -1, 1, 4], "q_rows": [1, -1, 8], "k_rows": [1, -1, 4]}
ATTENTION = "<heads = 2, kv_heads = 1, head_dim = 4, scale = 0.5, window = 0, softcap = 0.0, layer = 0>"
BEFORE = "head_dim=4, heads=2, kv_heads=1, layer=0, scale=0.5, softcap=0, window=0"


def after(rotary_dim: int, interleaved: int = 0) -> str:
    """The attributes of the fused node, as the listing shows them."""
    return (
        f"head_dim=4, heads=2, interleaved={interleaved}, kv_heads=1, layer=0, "
        f"rotary_dim={rotary_dim}, scale=0.5, softcap=0, window=0"
    )


def layer(number: int, x: str, rope: str, tables: str = "c, s", k_tables: str = "") -> str:
    """One layer's attention over x as an exporter writes it."""
    n = number
    return f"""
            q{n} = Reshape({x}, q_heads)
            qt{n} = Transpose <perm = [0, 2, 1, 3]> (q{n})
            kp{n} = MatMul({x}, wk)
            k{n} = Reshape(kp{n}, k_heads)
            kt{n} = Transpose <perm = [0, 2, 1, 3]> (k{n})
            qr{n} = RotaryEmbedding {rope} (qt{n}, {tables})
            kr{n} = RotaryEmbedding {rope.replace("num_heads = 2", "num_heads = 1")} (kt{n}, {k_tables or tables})
            qu{n} = Transpose <perm = [0, 2, 1, 3]> (qr{n})
            qf{n} = Reshape(qu{n}, q_rows)
            ku{n} = Transpose <perm = [0, 2, 1, 3]> (kr{n})
            kf{n} = Reshape(ku{n}, k_rows)
            y{n} = paceline.Attention {ATTENTION} (qf{n}, kf{n}, kp{n})"""


def graph_of(*layers: str, inputs: str = "", output: str = "y0") -> str:
    between = "<float[1,T,8] y0>" if output != "y0" else ""  # ONNX cannot infer through our operator
    return f"""(float[1,T,8] x, float[1,T,2] c, float[1,T,2] s {inputs}) => (float[1,T,8] {output}) {between} {{
            {"".join(layers)}
        }}"""


def listed(number: int, x: str) -> str:
    n = number
    return (
        f"q{n} = Reshape({x}, [1, -1, 2, 4])\n"
        f"qt{n} = Transpose(q{n}, perm=[0, 2, 1, 3])\n"
        f"kp{n} = MatMul({x}, wk)\n"
        f"k{n} = Reshape(kp{n}, [1, -1, 1, 4])\n"
        f"kt{n} = Transpose(k{n}, perm=[0, 2, 1, 3])\n"
        f"qt{n}/rows_first = Transpose(qt{n}, perm=[0, 2, 1, 3])\n"
        f"qt{n}/flat = Reshape(qt{n}/rows_first, [1, -1, 8])\n"
        f"kt{n}/rows_first = Transpose(kt{n}, perm=[0, 2, 1, 3])\n"
        f"kt{n}/flat = Reshape(kt{n}/rows_first, [1, -1, 4])\n"
    )


WEIGHTS = {**SHAPES, **weights(wk=[8, 4])}


def test_the_rotation_moves_into_attention_and_layers_share_the_table() -> None:
    check_rewrite(
        fuse_rope,
        graph_of(layer(0, "x", ""), layer(1, "y0", ""), output="y1"),
        listed(0, "x") + "cos_sin/c = Concat(c, s, axis=-1)\n"
        "cos_sin/c/rows = Reshape(cos_sin/c, [-1, 4])\n"
        f"y0 = Attention(qt0/flat, kt0/flat, kp0, cos_sin/c/rows, {after(4)})\n"
        + listed(1, "y0")
        + f"y1 = Attention(qt1/flat, kt1/flat, kp1, cos_sin/c/rows, {after(4)})",
        WEIGHTS,
        count=2,
    )


def test_a_theta_per_layer_makes_two_tables() -> None:
    check_rewrite(
        fuse_rope,
        graph_of(
            layer(0, "x", ""),
            layer(1, "y0", "", "c2, s2"),
            inputs=", float[1,T,2] c2, float[1,T,2] s2",
            output="y1",
        ),
        listed(0, "x") + "cos_sin/c = Concat(c, s, axis=-1)\n"
        "cos_sin/c/rows = Reshape(cos_sin/c, [-1, 4])\n"
        f"y0 = Attention(qt0/flat, kt0/flat, kp0, cos_sin/c/rows, {after(4)})\n"
        + listed(1, "y0")
        + "cos_sin/c2 = Concat(c2, s2, axis=-1)\n"
        "cos_sin/c2/rows = Reshape(cos_sin/c2, [-1, 4])\n"
        f"y1 = Attention(qt1/flat, kt1/flat, kp1, cos_sin/c2/rows, {after(4)})",
        WEIGHTS,
        count=2,
    )


@pytest.mark.parametrize(
    ("rope", "rotary_dim", "interleaved"), [("<interleaved = 1>", 4, 1), ("<interleaved = 0>", 4, 0)]
)
def test_pairs_and_halves(rope: str, rotary_dim: int, interleaved: int) -> None:
    check_rewrite(
        fuse_rope,
        graph_of(layer(0, "x", rope)),
        listed(0, "x") + "cos_sin/c = Concat(c, s, axis=-1)\n"
        f"cos_sin/c/rows = Reshape(cos_sin/c, [-1, {rotary_dim}])\n"
        f"y0 = Attention(qt0/flat, kt0/flat, kp0, cos_sin/c/rows, {after(rotary_dim, interleaved)})",
        WEIGHTS,
    )


def test_a_partial_rotation_keeps_its_width() -> None:
    narrow = ", float[1,T,1] c1, float[1,T,1] s1"
    check_rewrite(
        fuse_rope,
        graph_of(layer(0, "x", "<rotary_embedding_dim = 2, num_heads = 2>", "c1, s1"), inputs=narrow),
        listed(0, "x") + "cos_sin/c1 = Concat(c1, s1, axis=-1)\n"
        "cos_sin/c1/rows = Reshape(cos_sin/c1, [-1, 2])\n"
        f"y0 = Attention(qt0/flat, kt0/flat, kp0, cos_sin/c1/rows, {after(2)})",
        WEIGHTS,
    )


def test_q_and_k_rotated_by_two_tables_are_kept() -> None:
    check_kept(
        fuse_rope,
        graph_of(layer(0, "x", "", "c, s", "c, s2"), inputs=", float[1,T,2] s2"),
        WEIGHTS,
        "y0: q is rotated by c and s, k by c and s2: one table cannot serve both",
    )


def test_a_cache_indexed_by_positions_is_kept() -> None:
    check_kept(
        fuse_rope,
        graph_of(layer(0, "x", "", "cache_c, cache_s, p"), inputs=", int64[1,T] p"),
        {**WEIGHTS, **weights(cache_c=[9, 2], cache_s=[9, 2])},
        "y0: q: RotaryEmbedding picks rows of its cache by position_ids p",
    )


def test_a_layer_without_rotary_embedding_is_kept_and_named() -> None:
    check_kept(
        fuse_rope,
        f"""(float[1,T,8] x) => (float[1,T,8] y) {{
            k = MatMul(x, wk)
            y = paceline.Attention {ATTENTION} (x, k, k)
        }}""",
        WEIGHTS,
        "y: q comes from no RotaryEmbedding: a layer without rotary embedding, or one in another form",
    )
