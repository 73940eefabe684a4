"""The choice among drafting methods: who asks whom, and that order is kept."""

from toy_requests import toy_request

from paceline.runtime.draft import NgramDrafter, draft_for
from paceline.runtime.plan import Ride, StepPlan
from paceline.runtime.request import DraftMethod

REPEATS, FRESH = [1, 2, 3, 9, 1, 2, 3], [1, 2, 3, 4, 5, 6]


class FixedDrafter:
    """Guesses 50, 51, ... and remembers whom it was asked for."""

    def __init__(self):
        self.asked = []

    def propose(self, rides):
        self.asked = [ride.request.request_id for ride in rides]
        return [tuple(range(50, 50 + ride.num_drafts)) for ride in rides]


def plan_of(*rides):
    return StepPlan(
        tuple(
            Ride(toy_request(prompt, request_id=i, drafting=method), 0, len(prompt), k, True)
            for i, (prompt, method, k) in enumerate(rides)
        ),
        0,
    )


def test_each_request_is_drafted_for_by_its_method():
    engine = FixedDrafter()
    plan = plan_of(
        (REPEATS, DraftMethod.NONE, 0),
        (REPEATS, DraftMethod.NGRAM, 2),
        (REPEATS, DraftMethod.DRAFT, 2),
        (REPEATS, DraftMethod.AUTO, 2),
        (FRESH, DraftMethod.AUTO, 3),
        (FRESH, DraftMethod.NGRAM, 2),
    )
    assert draft_for(plan, NgramDrafter(), engine) == [(), (9, 1), (50, 51), (9, 1), (50, 51, 52), ()]
    assert engine.asked == [2, 4]


def test_auto_without_a_draft_engine_is_ngram_alone():
    plan = plan_of((REPEATS, DraftMethod.AUTO, 1), (FRESH, DraftMethod.AUTO, 1))
    assert draft_for(plan, NgramDrafter(), None) == [(9,), ()]


def test_ride_without_room_is_not_asked_for():
    engine = FixedDrafter()
    assert draft_for(plan_of((FRESH, DraftMethod.DRAFT, 0)), NgramDrafter(), engine) == [()]
    assert engine.asked == []
