"""Decisions of single steps, without any engine."""

import pytest
from toy_requests import toy_request

from paceline.runtime.pages import PagePool
from paceline.runtime.policies import Limits
from paceline.runtime.prefix import PrefixCache
from paceline.runtime.request import DraftMethod, Phase
from paceline.runtime.schedule import Scheduler
from paceline.runtime.step_stats import Counters

SIZE = 4


class Desk:
    """A scheduler with its surroundings, and the bookkeeping that the loop would do after a step."""

    def __init__(self, num_pages=64, **limits):
        self.pool = PagePool(num_pages)
        self.prefix = PrefixCache(self.pool, SIZE)
        self.counters = Counters()
        self.scheduler = Scheduler(Limits(**limits), self.pool, self.prefix, SIZE, self.counters)
        self.num_requests = 0

    def enqueue(self, num_prompt, **options):
        request = toy_request(num_prompt, request_id=self.num_requests, **options)
        self.num_requests += 1
        self.scheduler.enqueue(request)
        return request

    def step(self, token=99):
        """Schedule, pretend that the engine ran and that every guess was rejected."""
        plan = self.scheduler.schedule()
        self.pool.check()
        for ride in plan.rides:
            if ride.closes_gap:
                ride.request.state.append(token)
            ride.request.num_computed = ride.stop
            self.prefix.publish(ride.request)
            self.scheduler.trim(ride.request)
        return plan

    def rows(self, plan):
        return {ride.request.request_id: ride.stop - ride.start for ride in plan.rides}

    def drafts(self, plan):
        return {ride.request.request_id: ride.num_drafts for ride in plan.rides}


def test_prompt_is_cut_into_chunks_and_sampled_after_the_last():
    desk = Desk(max_chunk_tokens=4)
    desk.enqueue(10)
    rides = [desk.step().rides[0] for _ in range(4)]
    assert [(r.start, r.stop) for r in rides] == [(0, 4), (4, 8), (8, 10), (10, 11)]
    assert [r.closes_gap for r in rides] == [False, False, True, True]


def test_budget_bounds_the_rows_of_a_step():
    desk = Desk(max_num_batched_tokens=10)
    for _ in range(3):
        desk.enqueue(8)
    assert desk.rows(desk.step()) == {0: 8, 1: 2}


def test_one_row_is_kept_back_for_everybody_who_runs():
    desk = Desk(max_num_batched_tokens=8, max_num_seqs=4)
    for priority in (0, 0, 0):
        desk.enqueue(2, priority=priority)
    desk.step()
    desk.enqueue(50, priority=1)
    assert desk.rows(desk.step()) == {3: 5, 0: 1, 1: 1, 2: 1}


def test_higher_priority_goes_first_then_first_come_first_served():
    desk = Desk(max_num_seqs=2)
    for priority in (0, 1, 0, 1):
        desk.enqueue(3, priority=priority)
    assert [ride.request.request_id for ride in desk.step().rides] == [1, 3]


def test_nobody_overtakes_the_head_of_the_waiting_line():
    desk = Desk(num_pages=6)
    desk.enqueue(12)
    desk.enqueue(20)
    desk.enqueue(1)
    assert desk.rows(desk.step()) == {0: 12}


def test_running_request_without_a_page_takes_those_of_the_last_in_rank():
    desk = Desk(num_pages=4)
    first, second = desk.enqueue(7), desk.enqueue(3)
    desk.step()
    for _ in range(10):
        if second.phase is Phase.WAITING:
            break
        plan = desk.step()
    assert plan.num_preempted == 1
    assert first.phase is Phase.RUNNING
    assert second.num_known > 3, "output is kept"
    assert (second.num_computed, second.pages, second.page_row.any()) == (0, [], False)


def test_preempted_request_does_not_take_its_pages_back_in_the_same_step():
    desk = Desk(num_pages=4)
    desk.enqueue(7), desk.enqueue(3)
    plans = [desk.step() for _ in range(8)]
    (plan,) = (plan for plan in plans if plan.num_preempted)
    assert list(desk.rows(plan)) == [0]


def test_last_request_gives_up_its_own_pages_rather_than_an_earlier_ones():
    desk = Desk(num_pages=4)
    first, second = desk.enqueue(3), desk.enqueue(7)
    for _ in range(6):
        desk.step()
    assert (first.num_preemptions, second.num_preemptions) == (0, 1)


def test_first_in_rank_is_never_preempted():
    desk = Desk(num_pages=8, max_num_seqs=4)
    first = desk.enqueue(4, priority=1, max_tokens=1000)
    for _ in range(4):
        desk.enqueue(4, priority=0, max_tokens=1000)
    for _ in range(27):
        desk.step()
    assert first.num_preemptions == 0
    assert first.num_known == 31


def test_waiting_request_takes_pages_of_lower_priority_only():
    desk = Desk(num_pages=6)
    low = desk.enqueue(15, priority=0)
    desk.step()
    same = desk.enqueue([50] * 13, priority=0)
    desk.step()
    assert (low.phase, same.phase) == (Phase.RUNNING, Phase.WAITING)
    high = desk.enqueue([60] * 13, priority=1)
    desk.step()
    assert (low.phase, high.phase) == (Phase.WAITING, Phase.RUNNING)


def test_waiting_request_takes_a_seat_of_lower_priority():
    desk = Desk(max_num_seqs=1)
    low = desk.enqueue(3)
    desk.step()
    high = desk.enqueue(3, priority=1)
    desk.step()
    assert (low.phase, high.phase) == (Phase.WAITING, Phase.RUNNING)


def test_nobody_is_preempted_where_it_would_not_help():
    desk = Desk(num_pages=8)
    middle, low = desk.enqueue(15, priority=1), desk.enqueue(3, priority=0)
    desk.step()
    desk.enqueue(29, priority=1)
    desk.step()
    assert (middle.num_preemptions, low.num_preemptions) == (0, 0)


def test_guesses_get_rows_and_pages_with_the_step():
    desk = Desk()
    request = desk.enqueue(3, drafting=DraftMethod.NGRAM, k=6)
    assert desk.drafts(desk.scheduler.schedule()) == {0: 6}
    assert len(request.pages) == 3


def test_guesses_shrink_to_the_budget_and_to_what_max_tokens_can_use():
    desk = Desk(max_num_batched_tokens=8)
    desk.enqueue(3, drafting=DraftMethod.NGRAM, k=8, max_tokens=4)
    desk.enqueue(3, drafting=DraftMethod.NGRAM, k=8)
    desk.enqueue(1, drafting=DraftMethod.NGRAM, k=8)
    assert desk.drafts(desk.step()) == {0: 1, 1: 0, 2: 0}
    assert desk.drafts(desk.step()) == {0: 2, 1: 3, 2: 0}
    assert desk.drafts(desk.step()) == {0: 1, 1: 4, 2: 0}
    assert desk.drafts(desk.step()) == {0: 0, 1: 5, 2: 0}


def test_guesses_shrink_before_anybody_is_preempted():
    desk = Desk(num_pages=5)
    desk.enqueue(7, drafting=DraftMethod.NGRAM, k=8)
    desk.enqueue(3)
    plans = [desk.step() for _ in range(4)]
    assert [plan.num_preempted for plan in plans] == [0, 0, 0, 0]
    assert [desk.drafts(plan)[0] for plan in plans] == [8, 8, 3, 2]


def test_pages_of_rejected_guesses_are_given_back():
    desk = Desk()
    request = desk.enqueue(3, drafting=DraftMethod.NGRAM, k=8)
    desk.step()
    assert len(request.pages) == 1


def test_chunk_that_does_not_close_the_gap_is_not_drafted_for():
    desk = Desk(max_chunk_tokens=4)
    desk.enqueue(6, drafting=DraftMethod.NGRAM)
    assert desk.drafts(desk.step()) == {0: 0}
    assert desk.drafts(desk.step()) == {0: 4}


def test_prefix_hit_starts_behind_the_shared_pages():
    desk = Desk()
    owner = desk.enqueue(10)
    desk.step()
    sharer = desk.enqueue(10)
    plan = desk.step()
    assert [(r.start, r.stop) for r in plan.rides] == [(10, 11), (8, 10)]
    assert sharer.pages[:2] == owner.pages[:2]
    assert desk.counters.prefix_hit_tokens == 8
    assert desk.counters.prefix_queried_tokens == 20


def test_request_that_is_refused_a_seat_holds_nothing():
    desk = Desk(num_pages=5)
    owner = desk.enqueue(10)
    desk.step()
    waiting = desk.enqueue(14)
    desk.step()
    assert waiting.phase is Phase.WAITING
    assert waiting.pages == []
    assert [desk.pool.num_references(page) for page in owner.pages] == [1, 1, 1]


@pytest.mark.parametrize("running", [True, False])
def test_retired_request_leaves_its_line_and_its_pages(running):
    desk = Desk()
    request = desk.enqueue(10)
    if running:
        desk.step()
    desk.scheduler.retire(request)
    assert request.phase is Phase.FINISHED
    assert not desk.scheduler.running
    assert not desk.scheduler.waiting
    assert desk.pool.num_held == 0


def test_nothing_to_do_is_an_empty_plan():
    assert Desk().step().rides == ()
