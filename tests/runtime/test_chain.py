"""A request's side of sampling: history and counts grow in step."""

from array import array

import pytest

from paceline.runtime.chain import SamplerState, TokenCounts
from paceline.runtime.sampling_params import SamplingParams


def counted(counts):
    return dict(zip(counts.ids, counts.in_output, strict=True))


def test_prompt_tokens_are_seen_but_not_counted_as_output():
    counts = TokenCounts([5, 7, 5])
    for token_id in (7, 9, 7):
        counts.add(token_id)
    assert counted(counts) == {5: 0, 7: 2, 9: 1}


@pytest.mark.parametrize("penalty", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
def test_counts_are_kept_where_a_penalty_is_on(penalty):
    state = SamplerState(SamplingParams(**{penalty: 1.5}), 0, array("q", [1, 2]), 2)
    state.append(2)
    assert counted(state.counts) == {1: 0, 2: 1}
    assert (state.token_ids.tolist(), state.num_output) == ([1, 2, 2], 1)


def test_counts_cost_nothing_where_no_penalty_is_on():
    state = SamplerState(SamplingParams(temperature=1.0), 0, array("q", [1, 2]), 2)
    state.append(3)
    assert state.counts is None
