"""merge_qkv: the projections before an attention node become one, whatever stands between."""

from graph_text import weights
from pass_case import check_kept, check_rewrite

from paceline.passes.merge_qkv import merge_qkv

PROJECTIONS = weights(wq=[8, 8], wk=[8, 4], wv=[8, 4], bq=[8], bk=[4], bv=[4], q_norm=[4], k_norm=[4])
ATTENTION = "<heads = 2, kv_heads = 1, head_dim = 4, scale = 0.5, window = 0, softcap = 0.0, layer = 0>"
ATTENTION_AFTER = "head_dim=4, heads=2, kv_heads=1, layer=0, scale=0.5, softcap=0, window=0"


def test_three_projections_become_one() -> None:
    model = check_rewrite(
        merge_qkv,
        f"""(float[1,T,8] x) => (float[1,T,8] y) {{
            q = MatMul(x, wq)
            k = MatMul(x, wk)
            v = MatMul(x, wv)
            y = paceline.Attention {ATTENTION} (q, k, v)
        }}""",
        "q+k+v = MatMul(x, wq+wk+wv)\n"
        "q, k, v = Split(q+k+v, [8, 4, 4], axis=-1)\n"
        f"y = Attention(q, k, v, {ATTENTION_AFTER})",
        PROJECTIONS,
    )
    assert model.graph.initializers["wq+wk+wv"].shape == [8, 16]
    assert set(model.graph.initializers) == {"wq+wk+wv", "int64[8, 4, 4]"}


def test_biases_are_merged_too() -> None:
    check_rewrite(
        merge_qkv,
        f"""(float[1,T,8] x) => (float[1,T,8] y) {{
            q0 = MatMul(x, wq)
            q = Add(q0, bq)
            k0 = MatMul(x, wk)
            k = Add(k0, bk)
            v0 = MatMul(x, wv)
            v = Add(v0, bv)
            y = paceline.Attention {ATTENTION} (q, k, v)
        }}""",
        "q+k+v/product = MatMul(x, wq+wk+wv)\n"
        "q+k+v = Add(q+k+v/product, bq+bk+bv)\n"
        "q, k, v = Split(q+k+v, [8, 4, 4], axis=-1)\n"
        f"y = Attention(q, k, v, {ATTENTION_AFTER})",
        PROJECTIONS,
    )


def test_norms_of_q_and_k_stay_between() -> None:
    check_rewrite(
        merge_qkv,
        f"""(float[1,T,8] x) => (float[1,T,8] y) {{
            q = MatMul(x, wq)
            q_heads = Reshape(q, heads)
            q_scaled = RMSNormalization(q_heads, q_norm)
            q_flat = Reshape(q_scaled, q_rows)
            k = MatMul(x, wk)
            k_scaled = RMSNormalization(k, k_norm)
            v = MatMul(x, wv)
            y = paceline.Attention {ATTENTION} (q_flat, k_scaled, v)
        }}""",
        "q+k+v = MatMul(x, wq+wk+wv)\n"
        "q, k, v = Split(q+k+v, [8, 4, 4], axis=-1)\n"
        "q_heads = Reshape(q, [1, -1, 2, 4])\n"
        "q_scaled = RMSNormalization(q_heads, q_norm)\n"
        "q_flat = Reshape(q_scaled, [1, -1, 8])\n"
        "k_scaled = RMSNormalization(k, k_norm)\n"
        f"y = Attention(q_flat, k_scaled, v, {ATTENTION_AFTER})",
        {**PROJECTIONS, "heads": [1, -1, 2, 4], "q_rows": [1, -1, 8]},
    )


def test_projections_of_two_inputs_are_kept() -> None:
    check_kept(
        merge_qkv,
        f"""(float[1,T,8] x, float[1,T,8] z) => (float[1,T,8] y) {{
            q = MatMul(x, wq)
            k = MatMul(z, wk)
            v = MatMul(z, wv)
            y = paceline.Attention {ATTENTION} (q, k, v)
        }}""",
        PROJECTIONS,
        "y: q reads x, k reads z: not the same input",
    )


def test_keys_used_as_values_are_kept() -> None:
    check_kept(
        merge_qkv,
        f"""(float[1,T,8] x) => (float[1,T,8] y) {{
            q = MatMul(x, wq)
            k = MatMul(x, wk)
            y = paceline.Attention {ATTENTION} (q, k, k)
        }}""",
        PROJECTIONS,
        "y: k has two roles: nothing to merge",
    )
