"""Everything that can never be served is refused on arrival, with what was found and needed."""

from dataclasses import replace

import pytest
from toy_engine import MAX_POSITIONS, toy_facts

from paceline.runtime.arrival import Reception
from paceline.runtime.errors import PacelineError, RequestError
from paceline.runtime.policies import Limits
from paceline.runtime.request import DraftMethod, RequestOptions
from paceline.runtime.sampling_params import SamplingParams

METHODS = frozenset(DraftMethod) - {DraftMethod.DRAFT}


@pytest.fixture
def reception():
    return Reception(toy_facts(), 20, Limits(max_draft_tokens=6), METHODS, frozenset({0}))


def ask(reception, prompt=(1, 2, 3), params=None, **options):
    return reception.request(prompt, params or SamplingParams(max_tokens=9), RequestOptions(**options), None, 7.0)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"prompt": ()}, "empty prompt"),
        ({"prompt": (1, 40)}, "token id 40 in the prompt; needed: ids from 0 to 39"),
        ({"prompt": (1, -1)}, "token id -1"),
        ({"params": SamplingParams(max_tokens=MAX_POSITIONS)}, f"at most {MAX_POSITIONS} tokens"),
        ({"params": SamplingParams(max_tokens=90)}, "93 tokens need 24 pages; needed: at most 20 pages"),
        ({"params": SamplingParams(max_tokens=0)}, "max_tokens = 0"),
        ({"drafting": DraftMethod.DRAFT}, "no draft engine"),
        ({"num_draft_tokens": 7}, "num_draft_tokens = 7; needed: 0 to 6"),
        ({"num_draft_tokens": -1}, "num_draft_tokens = -1"),
        ({"deadline_s": 0.0}, "more than 0 seconds"),
        ({"queue_timeout_s": -1.0}, "more than 0 seconds"),
    ],
)
def test_impossible_request_is_refused(reception, asked, message):
    with pytest.raises(RequestError, match=message):
        ask(reception, **asked)


def test_longest_possible_request_is_taken(reception):
    assert ask(reception, params=SamplingParams(max_tokens=77)).num_left == 77


def test_stop_ids_are_the_models_and_the_requests(reception):
    params = SamplingParams(max_tokens=9, stop_token_ids=(5,))
    assert ask(reception, params=params).stop_ids == {0, 5}
    assert ask(reception, params=replace(params, ignore_eos=True)).stop_ids == {5}


def test_seed_is_kept_or_drawn(reception):
    assert ask(reception, params=SamplingParams(max_tokens=9, seed=11)).state.seed == 11
    assert ask(reception).state.seed != ask(reception).state.seed


def test_requests_rank_by_priority_then_by_arrival(reception):
    first, second, urgent = ask(reception), ask(reception), ask(reception, priority=3)
    assert sorted((first, second, urgent), key=lambda r: r.rank) == [urgent, first, second]


def test_only_requests_that_look_up_their_text_carry_an_index(reception):
    assert [m for m in sorted(METHODS) if ask(reception, drafting=m).ngrams] == [DraftMethod.AUTO, DraftMethod.NGRAM]


def test_limits_leave_a_row_for_everybody():
    with pytest.raises(PacelineError, match="one row for each"):
        Limits(max_num_seqs=8, max_num_batched_tokens=7)


def test_limits_are_at_least_one():
    with pytest.raises(PacelineError, match="max_chunk_tokens = 0; needed: at least 1"):
        Limits(max_chunk_tokens=0)
