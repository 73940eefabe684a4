"""insert_paged_attention: the operator, its pools and what all layers share; numbers against the unpaged graph."""

import ml_dtypes
import numpy as np
import pytest
from graph_text import graph, listing, weights
from tolerances import TOLERANCES

from paceline.passes.base import run_passes
from paceline.passes.compare_graphs import run_graph
from paceline.passes.insert_paged_attention import insert_paged_attention
from paceline.passes.target import Target

ATTRIBUTES = (
    "heads = 4, kv_heads = 2, head_dim = 16, scale = 0.25, window = {window}, softcap = 0.0, rotary_dim = {rotary}, "
    "interleaved = 0, layer = {layer}"
)
TARGET = Target(cache_dtype="float32", page_size=4)


def layers(*nodes: str) -> str:
    inputs = "float[T,64] q, float[T,32] k, float[T,32] v, float[T,16] cos_sin, float[4] sinks"
    outputs = ", ".join(f"float[T,64] out{layer}" for layer in range(len(nodes)))
    return f"({inputs}) => ({outputs}) {{ {' '.join(nodes)} }}"


def attention(layer: int, extra: str = "", window: int = 0, rotary: int = 0) -> str:
    attributes = ATTRIBUTES.format(layer=layer, window=window, rotary=rotary)
    return f"out{layer} = paceline.Attention<{attributes}>(q, k, v{extra})"


def test_pools_and_shared_inputs_are_added_in_order() -> None:
    model = graph(layers(attention(0, ", cos_sin", rotary=16), attention(1, ", , sinks", window=3)))
    (report,) = run_passes(model, Target(cache_dtype="bfloat16", page_size=8), (insert_paged_attention,))
    assert (report.count, report.reasons) == (2, ())
    shared = "head_dim=16, heads=4, interleaved=0, kv_heads=2"
    step = "page_table, query_start, context_len"
    rest = "page_size=8"
    assert listing(model).splitlines() == [
        f"out0, kv_pages_out.0 = PagedAttention(q, k, v, kv_pages.0, {step}, cos_sin, "
        f"{shared}, layer=0, {rest}, rotary_dim=16, scale=0.25, softcap=0, window=0)",
        f"out1, kv_pages_out.1 = PagedAttention(q, k, v, kv_pages.1, {step}, -, sinks, "
        f"{shared}, layer=1, {rest}, rotary_dim=0, scale=0.25, softcap=0, window=3)",
    ]
    pool = next(value for value in model.graph.inputs if value.name == "kv_pages.1")
    assert (str(pool.shape), str(pool.dtype)) == ("[2,num_pages,2,128]", "BFLOAT16")
    assert [value.name for value in model.graph.outputs] == ["out0", "out1", "kv_pages_out.0", "kv_pages_out.1"]
    assert run_passes(model, TARGET, (insert_paged_attention,))[0].count == 0


@pytest.mark.parametrize("cache_dtype", ["float32", "bfloat16"])
def test_one_request_from_its_start_gets_what_the_unpaged_graph_gives(cache_dtype: str) -> None:
    text = layers(attention(0, ", cos_sin, sinks", window=5, rotary=16))
    before, after = graph(text), graph(text)
    run_passes(after, Target(cache_dtype=cache_dtype, page_size=4), (insert_paged_attention,))
    rows = 11
    inputs = weights(q=[rows, 64], k=[rows, 32], v=[rows, 32], sinks=[4])
    angles = np.outer(np.arange(rows), 10.0 ** -np.arange(8)).astype(np.float32)
    inputs["cos_sin"] = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    dtype = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}[cache_dtype]
    paged = {
        **inputs,
        "page_table": np.array([[2, 0, 4]], np.int32),
        "query_start": np.array([0, rows], np.int32),
        "context_len": np.array([rows], np.int32),
        "kv_pages.0": np.full((2, 5, 2, 64), 7, dtype),
    }
    wanted, found = run_graph(before, inputs)["out0"], run_graph(after, paged)
    np.testing.assert_allclose(found["out0"], wanted, **TOLERANCES[cache_dtype])
    untouched = found["kv_pages_out.0"][:, [1, 3]].astype(np.float32)
    assert (untouched == 7).all(), "pages of nobody were written"


@pytest.mark.parametrize(
    ("nodes", "count", "reason"),
    [
        ((attention(0), attention(1).replace("layer = 1", "layer = 0")), 1, "out1: layer 0 has a pool already"),
        ((attention(0).replace(", layer = 0", ""),), 0, "out0: the attention does not say which layer it is"),
    ],
)
def test_attention_without_a_pool_of_its_own_is_kept(nodes: tuple[str, ...], count: int, reason: str) -> None:
    model = graph(layers(*nodes))
    (report,) = run_passes(model, TARGET, (insert_paged_attention,))
    assert (report.count, report.reasons) == (count, (reason,))
    assert sum(node.op_type == "Attention" for node in model.graph) == 1
