"""Arrays of a step, number by number, as plugins/contract.py describes them."""

import numpy as np
import pytest
from toy_engine import toy_facts
from toy_requests import toy_request

from paceline.runtime.batch import BatchBuilder, Segment
from paceline.runtime.policies import Limits


@pytest.fixture
def builder():
    return BatchBuilder(Limits(max_num_seqs=3, max_num_batched_tokens=16), toy_facts())


def with_pages(request, *pages):
    request.add_pages(pages)
    request.page_row = np.resize(request.page_row, 40)
    return request


def test_chunk_decode_and_verification_lie_back_to_back(builder):
    chunk = with_pages(toy_request([10, 11, 12, 13, 14, 15]), 7, 8)
    decode = with_pages(toy_request([20, 21, 22]), 3)
    verification = with_pages(toy_request([30, 31, 32, 33]), 5, 1)
    batch = builder.build(
        [
            Segment(chunk, 1, 4, (), 0),
            Segment(decode, 2, 3, (), 1),
            Segment(verification, 3, 4, (40, 41), 3),
        ]
    )
    assert batch.input_ids.tolist() == [11, 12, 13, 22, 33, 40, 41]
    assert batch.positions.tolist() == [1, 2, 3, 2, 3, 4, 5]
    assert batch.query_start.tolist() == [0, 3, 4, 7]
    assert batch.context_len.tolist() == [4, 3, 6]
    assert batch.page_table[:, :3].tolist() == [[7, 8, 0], [3, 0, 0], [5, 1, 0]]
    assert batch.logit_rows.tolist() == [3, 4, 5, 6]


def test_dtypes_are_those_of_the_contract(builder):
    batch = builder.build([Segment(with_pages(toy_request(3), 0), 0, 3, (), 1)])
    dtypes = {name: getattr(batch, name).dtype.name for name in batch.__slots__}
    assert dtypes == {
        "input_ids": "int64",
        "positions": "int64",
        "query_start": "int32",
        "context_len": "int32",
        "page_table": "int32",
        "logit_rows": "int64",
    }
    assert batch.page_table.flags.c_contiguous


def test_position_follows_from_context_len_and_query_start(builder):
    requests = [with_pages(toy_request(n), 0, 1, 2) for n in (5, 9, 2)]
    batch = builder.build([Segment(r, r.num_known - 2, r.num_known, (1,), 1) for r in requests])
    for b in range(3):
        for t in range(batch.query_start[b], batch.query_start[b + 1]):
            assert batch.positions[t] == batch.context_len[b] - (batch.query_start[b + 1] - t)


def test_row_of_a_draft_step_holds_the_guess_alone(builder):
    batch = builder.build([Segment(with_pages(toy_request([1, 2, 3]), 4, 5), 4, 4, (9,), 1)])
    assert (batch.input_ids.tolist(), batch.positions.tolist(), batch.context_len.tolist()) == ([9], [4], [5])


def test_next_build_leaves_nothing_of_the_last(builder):
    builder.build([Segment(with_pages(toy_request(12), 4, 5, 6), 0, 12, (), 1)])
    batch = builder.build([Segment(with_pages(toy_request(2), 1), 1, 2, (), 1)])
    assert batch.input_ids.tolist() == [2]
    assert batch.page_table.tolist() == [[1] + [0] * 39]


def test_segment_without_rows_is_a_bug(builder):
    with pytest.raises(AssertionError, match="counter"):
        builder.build([Segment(with_pages(toy_request(3), 1), 3, 3, (), 1)])
