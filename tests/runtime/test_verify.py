"""Rows, chains and counters of one verification, against the table in the module's docstring."""

import pytest
from toy_requests import toy_request

from paceline.runtime.plan import Ride, StepPlan
from paceline.runtime.verify import chains_for, num_accepted, num_valid, roll_back, segments_for


@pytest.fixture
def plan():
    whole, part, plain = toy_request(5), toy_request(9), toy_request(3)
    return StepPlan((Ride(whole, 4, 5, 3, True), Ride(part, 0, 4, 0, False), Ride(plain, 2, 3, 2, True)), 0)


def test_logits_are_wanted_for_the_last_known_row_and_every_guess(plan):
    segments = segments_for(plan, [(7, 8), (), ()])
    assert [(s.start, s.stop, s.guess, s.num_logits) for s in segments] == [
        (4, 5, (7, 8), 3),
        (0, 4, (), 0),
        (2, 3, (), 1),
    ]


def test_chains_skip_rides_that_do_not_close_their_gap(plan):
    chains = chains_for(plan, [(7, 8), (), ()])
    assert [(c.row, c.draft, c.position, c.pending) for c in chains] == [(0, (7, 8), 5, ()), (3, (), 3, ())]
    assert chains[0].state is plan.rides[0].request.state


@pytest.mark.parametrize(
    ("known", "guesses", "sampled", "target_valid", "draft_valid"),
    [
        (10, 4, 1, 10, 10),  # g0 refused
        (10, 4, 3, 12, 12),  # two accepted, g2 refused
        (10, 4, 4, 13, 13),  # three accepted, the last refused
        (10, 4, 5, 14, 13),  # all accepted: the draft never computed its last guess
        (10, 1, 2, 11, 10),
        (10, 0, 1, 10, 7),  # nothing guessed: the draft has not caught up
    ],
)
def test_counters_come_down_to_what_is_valid(known, guesses, sampled, target_valid, draft_valid):
    request = toy_request(known)
    request.num_draft_computed = known + guesses - 1 if guesses else 7
    for token_id in range(sampled):
        request.state.append(token_id)
    roll_back(request, num_valid(known, num_accepted(range(sampled))))
    assert (request.num_computed, request.num_draft_computed) == (target_valid, draft_valid)
    assert request.num_computed == request.num_known - 1


def test_stop_inside_the_guesses_leaves_no_counter_beyond_the_known_tokens():
    request = toy_request(10)
    request.num_draft_computed = 13
    request.state.append(1)
    request.state.append(2)
    roll_back(request, num_valid(10, 4))
    assert (request.num_computed, request.num_draft_computed) == (12, 12)
