"""PagedAttention's batch invariance: a row's bits in any company, any chunks and on any way through the kernel."""

import itertools
from dataclasses import replace
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from attention_case import LAYERS, NUM_PAGES, PAGE, Layer, Step, case_of, make_step, oracle, part_of
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_case import Runner, bits_of
from tolerances import TOLERANCES


@pytest.mark.parametrize(
    "layer", [Layer(), LAYERS["all at once"], Layer(heads=9, kv_heads=3)], ids=["plain", "all", "9"]
)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn], ids=["f32", "bf16", "fp8"])
def test_a_request_has_the_same_bits_alone_and_in_any_chunks(layer: Layer, dtype: type) -> None:
    layer = replace(layer, dtype=dtype)
    kernel = case_of(layer).kernel()
    step = make_step(layer, [(33, 1), (5, 70), (0, 45), (20, 4)], seed=3)
    together, pages = kernel(**step.arrays)
    rng = np.random.default_rng(4)
    for request, rows in enumerate(step.rows):
        count = rows.stop - rows.start
        for _ in range(4):
            cuts = sorted({0, count, *rng.integers(1, count + 1, 3).tolist()})
            alone = chunked(kernel, step, request, cuts)
            assert bits_of(alone) == bits_of(together[rows]), f"request {request} cut at {cuts}"
    assert bits_of(kernel(**step.arrays)[1]) == bits_of(pages)


def chunked(kernel: Runner, step: Step, request: int, cuts: list[int]) -> np.ndarray:
    """One request in several steps, each on the pages that the step before has left."""
    outs, pages = [], step.arrays["kv_pages"]
    for first, last in itertools.pairwise(cuts):
        out, pages = kernel(**{**part_of(step, request, first, last), "kv_pages": pages})
        outs.append(out)
    return np.concatenate(outs)


LAYER_NAMES = ("plain", "nine heads on three", "all at once", "each its own")


@settings(max_examples=40, derandomize=True, deadline=None)
@given(
    name=st.sampled_from(LAYER_NAMES),
    dtype=st.sampled_from([np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]),
    requests=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 50)), min_size=1, max_size=5),
    seed=st.integers(0, 1000),
)
def test_random_mixes(name: str, dtype: type, requests: list[tuple[int, int]], seed: int) -> None:
    layer = replace(LAYERS[name], dtype=dtype)
    kernel = kernel_of(layer)
    step = make_step(layer, requests, seed)
    together, _ = kernel(**step.arrays)
    for request, rows in enumerate(step.rows):
        cut = seed % (rows.stop - rows.start)
        alone = chunked(kernel, step, request, sorted({0, cut, rows.stop - rows.start}))
        assert bits_of(alone) == bits_of(together[rows])


@cache
def kernel_of(layer: Layer) -> Runner:
    return case_of(layer).kernel()


# Past tokens and new ones: segments of 256 keys end inside, at and behind the new rows; more than four are cut.
DEEP = [(250, 12), (256, 1), (1023, 2), (1024, 1), (1400, 40), (1300, 6)]


@pytest.mark.parametrize("window", [0, 300, 1100])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["f32", "bf16"])
def test_long_contexts_are_cut_without_a_trace(window: int, dtype: type) -> None:
    """Rows of one step in one task, in parts over threads, or in prefill chunks, by their number."""
    layer = Layer(heads=2, kv_heads=1, head_dim=16, window=window, has_sinks=True, dtype=dtype)
    kernel = kernel_of(layer)
    step = make_step(layer, DEEP, num_pages=400)
    together, _ = kernel(**step.arrays)
    expected, _ = oracle(layer, step)
    np.testing.assert_allclose(together, expected, **TOLERANCES["bfloat16_cache"])
    for request, rows in enumerate(step.rows):
        count = rows.stop - rows.start
        cuts = sorted({0, count // 2, count - 1, count})
        assert bits_of(chunked(kernel, step, request, cuts)) == bits_of(together[rows]), request


def test_requests_may_share_full_pages() -> None:
    layer = LAYERS["nine heads on three"]
    kernel = kernel_of(layer)
    step = make_step(layer, [(37, 3), (35, 40), (32, 1)], seed=7)
    step.arrays["page_table"][1:, :2] = step.arrays["page_table"][0, :2]
    together, _ = kernel(**step.arrays)
    for request, rows in enumerate(step.rows):
        assert bits_of(chunked(kernel, step, request, [0, rows.stop - rows.start])) == bits_of(together[rows])


def test_a_request_without_rows_changes_nothing() -> None:
    layer = Layer()
    step = make_step(layer, [(20, 4)])
    expected = kernel_of(layer)(**step.arrays)
    arrays = dict(step.arrays)
    arrays["query_start"] = np.array([0, 0, 4, 4], np.int32)
    arrays["context_len"] = np.array([5, 24, 0], np.int32)
    arrays["page_table"] = np.repeat(arrays["page_table"], 3, axis=0)
    assert [bits_of(one) for one in kernel_of(layer)(**arrays)] == [bits_of(one) for one in expected]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_later_row_that_is_no_number_stays_alone(dtype: type, bad: float) -> None:
    """The old bug: rows of one tile share its values, and a weight of 0 times infinity is no 0."""
    layer = Layer(heads=3, kv_heads=3, dtype=dtype)
    step = make_step(layer, [(9, 8)])
    clean, _ = kernel_of(layer)(**step.arrays)
    for row in range(1, 8):
        arrays = {**step.arrays, "v": step.arrays["v"].copy(), "k": step.arrays["k"].copy()}
        arrays["v"][row] = arrays["k"][row] = bad
        assert bits_of(kernel_of(layer)(**arrays)[0][:row]) == bits_of(clean[:row]), row


def test_leftovers_behind_the_last_token_are_never_read() -> None:
    """The old bug: 0 times the infinity that another request left in the page is no 0."""
    layer = Layer()
    step = make_step(layer, [(3, 2)])
    clean = case_of(layer).kernel()(**step.arrays)[0]
    dirty = step.arrays["kv_pages"].copy().reshape(2, NUM_PAGES, layer.kv_heads, PAGE * layer.head_dim)
    page = step.arrays["page_table"][0, 0]
    dirty[1, page].reshape(layer.kv_heads, PAGE, layer.head_dim)[:, 5:] = np.inf
    dirty[0, page].reshape(layer.kv_heads, layer.head_dim, PAGE)[..., 5:] = np.nan
    assert bits_of(case_of(layer).kernel()(**{**step.arrays, "kv_pages": dirty})[0]) == bits_of(clean)
