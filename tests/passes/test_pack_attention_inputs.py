"""pack_attention_inputs: the parts of one projection reach attention without a Split."""

import numpy as np
import pytest
from graph_text import weights
from pass_case import check_kept, check_rewrite

from paceline.passes.pack_attention_inputs import pack_attention_inputs

ATTRIBUTES = (
    "heads = 2, kv_heads = 1, head_dim = 16, scale = 0.25, window = 0, softcap = 0.0, layer = 0, rotary_dim = 0, "
    "interleaved = 0, page_size = 16"
)
LISTED = ", ".join(sorted(ATTRIBUTES.replace(" = ", "=").replace("0.0", "0").split(", ")))
INPUTS = "float[5,64] qkv, float[2,3,1,256] pool, int32[1,1] table, int32[2] starts, int32[1] lengths"
WIDTHS = {"widths": np.array([32, 16, 16])}


def graph_of(split: str = "q, k, v", attention: str = "q, k, v", outputs: str = "") -> str:
    return f"""({INPUTS}) => (float[5,32] y, float[2,3,1,256] pool_out{outputs}) {{
            {split} = Split <axis = -1> (qkv, widths)
            y, pool_out = paceline.PagedAttention <{ATTRIBUTES}> ({attention}, pool, table, starts, lengths)
        }}"""


@pytest.fixture(autouse=True)
def one_request_of_five_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables cannot be random numbers."""
    import pass_case

    def inputs(model) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(0)
        return {
            "qkv": rng.standard_normal((5, 64)).astype(np.float32),
            "pool": rng.standard_normal((2, 3, 1, 256)).astype(np.float32),
            "table": np.array([[1]], np.int32),
            "starts": np.array([0, 5], np.int32),
            "lengths": np.array([9], np.int32),
        }

    monkeypatch.setattr(pass_case, "random_inputs", inputs)


def test_the_split_goes() -> None:
    check_rewrite(
        pack_attention_inputs,
        graph_of(),
        f"y, pool_out = PagedAttention(qkv, -, -, pool, table, starts, lengths, {LISTED})",
        WIDTHS,
    )


def test_parts_in_another_order_are_kept() -> None:
    text = graph_of(attention="q, v, k")
    check_kept(pack_attention_inputs, text, WIDTHS, "y: q, k and v are not the three parts of qkv")


def test_parts_that_others_read_are_kept() -> None:
    text = graph_of(outputs=", float[5,16] v")
    check_kept(pack_attention_inputs, text, WIDTHS, "y: v has other readers than the attention")


def test_parts_of_other_sizes_are_kept() -> None:
    """Such a graph is wrong; it must not become one that runs."""
    wrong = {"widths": np.array([16, 32, 16])}
    reason = "y: the parts are [16, 32, 16] wide, not [32, 16, 16]"
    check_kept(pack_attention_inputs, graph_of(), wrong, reason)


def test_three_tensors_are_no_candidate() -> None:
    text = f"""({INPUTS}, float[5,32] q, float[5,16] k, float[5,16] v) => (float[5,32] y, float[2,3,1,256] pool_out) {{
            y, pool_out = paceline.PagedAttention <{ATTRIBUTES}> (q, k, v, pool, table, starts, lengths)
        }}"""
    check_kept(pack_attention_inputs, text, weights(), None)
