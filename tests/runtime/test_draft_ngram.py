"""N-gram look-up against a search that anyone can follow."""

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.runtime.draft_ngram import LONGEST, SHORTEST, NgramIndex

few_tokens = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def searched(token_ids: list[int], count: int) -> tuple[int, ...]:
    """Longest suffix first, most recent earlier occurrence, continued periodically past the end."""
    for n in range(LONGEST, SHORTEST - 1, -1):
        for start in range(len(token_ids) - n - 1, -1, -1):
            if token_ids[start : start + n] == token_ids[-n:]:
                text = list(token_ids)
                for _ in range(count):
                    text.append(text[start + n + len(text) - len(token_ids)])
                return tuple(text[len(token_ids) :])
    return ()


@settings(max_examples=300, derandomize=True, deadline=None)
@given(prompt=few_tokens, output=few_tokens, count=st.integers(1, 8))
def test_index_grown_token_by_token_finds_what_a_search_finds(prompt, output, count):
    tokens = [1 + t for t in prompt]  # id 0 is also the padding in front of a short text
    token_ids = array("q", tokens)
    index = NgramIndex(token_ids)
    for token_id in output:
        assert index.propose(count) == searched(token_ids.tolist(), count)
        token_ids.append(1 + token_id)
    assert index.propose(count) == searched(token_ids.tolist(), count)


def test_most_recent_occurrence_wins():
    assert NgramIndex(array("q", [1, 2, 30, 1, 2, 40, 1, 2])).propose(1) == (40,)


def test_longer_suffix_wins_over_a_more_recent_shorter_one():
    assert NgramIndex(array("q", [5, 1, 2, 30, 6, 1, 2, 40, 5, 1, 2])).propose(1) == (30,)


def test_guess_goes_on_with_the_period_of_the_text():
    assert NgramIndex(array("q", [1, 2, 3, 1, 2, 3, 1, 2])).propose(7) == (3, 1, 2, 3, 1, 2, 3)


@pytest.mark.parametrize("prompt", [[1], [1, 2], [1, 2, 3, 4, 5]])
def test_nothing_is_guessed_where_nothing_repeats(prompt):
    assert NgramIndex(array("q", prompt)).propose(4) == ()


def test_large_token_ids_are_found():
    assert NgramIndex(array("q", [262143, 262142, 7, 262143, 262142])).propose(1) == (7,)
