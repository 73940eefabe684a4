"""PagedAttention refuses tables and shapes that do not fit, by name: they would read or write behind tensors."""

import numpy as np
import pytest
from attention_case import NUM_PAGES, Layer, case_of, make_step

STEP_LAYER = Layer(has_sinks=True)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("page_table", np.full((1, 2), NUM_PAGES, np.int32), "outside the pool"),
        ("page_table", np.full((1, 2), -1, np.int32), "outside the pool"),
        ("context_len", np.array([33], np.int32), "beyond the page table"),
        ("context_len", np.array([3], np.int32), "smaller than"),
        ("query_start", np.array([0, 9], np.int32), "number of rows"),
        ("query_start", np.array([1, 4], np.int32), "number of rows"),
    ],
)
def test_tables_that_point_elsewhere_are_refused(name: str, value: np.ndarray, words: str) -> None:
    layer = Layer()
    step = make_step(layer, [(20, 4)])
    with pytest.raises(Exception, match=words):
        case_of(layer).kernel()(**{**step.arrays, name: value})


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("q", lambda q: q[:, :-16], "q whose last axis"),
        ("k", lambda k: k[:, :-16], "k or v"),
        ("k", lambda k: k[:-1], "k or v"),
        ("v", lambda v: v[:, :-16], "k or v"),
        ("v", lambda v: v[:-1], "k or v"),
        ("kv_pages", lambda pool: pool[:, :, :1], "kv_pages"),
        ("kv_pages", lambda pool: pool[:1], "kv_pages"),
        ("kv_pages", lambda pool: pool[..., :-16], "kv_pages"),
        ("page_table", lambda table: np.repeat(table, 2, axis=0), "numbers of requests"),
        ("query_start", lambda starts: np.append(starts, starts[-1]), "numbers of requests"),
        ("context_len", lambda lengths: np.repeat(lengths, 2), "numbers of requests"),
        ("cos_sin", lambda table: table[:-1], "cos_sin"),
        ("cos_sin", lambda table: table[:, :-2], "cos_sin"),
        ("sinks", lambda sinks: sinks[:-1], "sinks"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(name: str, change, words: str) -> None:
    """The old bug: a narrow q wrote over the heap, short k and v were read behind their ends."""
    step = make_step(STEP_LAYER, [(20, 4)])
    with pytest.raises(Exception, match=words):
        case_of(STEP_LAYER).kernel()(**{**step.arrays, name: change(step.arrays[name])})


def test_a_query_start_that_falls_is_refused() -> None:
    layer = Layer()
    arrays = make_step(layer, [(20, 2), (3, 2)]).arrays
    with pytest.raises(Exception, match="falls"):
        case_of(layer).kernel()(**{**arrays, "query_start": np.array([0, 5, 4], np.int32)})


def test_rows_of_no_request_are_refused_and_no_rows_change_no_page() -> None:
    layer = Layer()
    arrays = make_step(layer, [(20, 2)]).arrays
    nobody = {
        "page_table": np.zeros((0, 2), np.int32),
        "query_start": np.zeros(1, np.int32),
        "context_len": np.zeros(0, np.int32),
    }
    with pytest.raises(Exception, match="no request"):
        case_of(layer).kernel()(**{**arrays, **nobody})
    nothing = {name: arrays[name][:0] for name in ("q", "k", "v", "cos_sin")}
    out, pages = case_of(layer).kernel()(**{**arrays, **nobody, **nothing})
    assert out.shape == (0, layer.heads * layer.head_dim)
    np.testing.assert_array_equal(pages, arrays["kv_pages"])
