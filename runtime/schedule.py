"""The decision of one step: who computes how many rows, on which pages. Touches no device; returns a frozen StepPlan.

In: waiting and running requests, the page pool, the limits. Out: a `StepPlan`, and requests moved between waiting and
running. One walk over both lines in rank order: each request gets what closes its gap, within the budget of rows.
Separate prefill and decode rounds lost: the gap says all, and one row is kept back for every running request behind,
so a long prompt slows the others down but never stops them.

Pages are allocated all or nothing. A running request that lacks a page takes those of the last in rank; a waiting one
only those of strictly lower priority. The first in rank is therefore never preempted, which guarantees progress.
Guesses get what everybody's known tokens leave over: K shrinks before anyone is preempted.
"""

from bisect import insort
from operator import attrgetter

from .pages import PagePool, num_pages_for
from .plan import Ride, StepPlan
from .policies import Limits
from .prefix import PrefixCache
from .request import Phase, Request
from .step_stats import Counters

__all__ = ["Scheduler"]

by_rank = attrgetter("rank")


class Scheduler:
    """Owner of the two lines, `waiting` and `running`, both in rank order. The loop's thread owns it."""

    def __init__(self, limits: Limits, pool: PagePool, prefix: PrefixCache, page_size: int, counters: Counters) -> None:
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self._limits = limits
        self._pool = pool
        self._prefix = prefix
        self._page_size = page_size
        self._counters = counters

    def enqueue(self, request: Request) -> None:
        """Put a new request in line."""
        insort(self.waiting, request, key=by_rank)

    def retire(self, request: Request) -> None:
        """Take a request out of its line, whichever it is, and give its pages back."""
        if request.phase is Phase.RUNNING:
            self.running.remove(request)
            self._pool.release(request.take_pages(0))
        else:
            self.waiting.remove(request)
        request.phase = Phase.FINISHED

    def trim(self, request: Request) -> None:
        """Give back pages behind the known tokens: rejected guesses must not cost anybody a preemption."""
        surplus = request.take_pages(num_pages_for(request.num_known, self._page_size))
        if surplus:
            self._pool.release(surplus)

    def schedule(self) -> StepPlan:
        """Decide one step; an empty plan when nobody can run."""
        before = self._counters.preemptions
        seats, budget = self._seat_in_rank_order()
        rides = self._add_guesses(seats, budget)
        return StepPlan(rides, self._counters.preemptions - before)

    def _seat_in_rank_order(self) -> tuple[list[tuple[Request, int]], int]:
        """(request, how far its known tokens are computed) for everybody who rides, and the rows left over.

        Everyone who runs and was passed on the walk has a seat, so `len(running) - len(seats)` requests lie behind.
        After a preemption the door stays shut for this step: whoever gave up pages must not take them back at once.
        """
        seats: list[tuple[Request, int]] = []
        budget, preemptions = self._limits.max_num_batched_tokens, self._counters.preemptions
        door_open = True
        for request in self._walk():
            if request.phase is Phase.RUNNING:
                seated = self._grow(request)
            else:
                seated = door_open and budget > len(self.running) - len(seats) and self._admit(request)
                door_open = seated
            door_open = door_open and self._counters.preemptions == preemptions
            if seated:
                kept_back = len(self.running) - len(seats) - 1
                rows = min(request.num_known - request.num_computed, self._limits.max_chunk_tokens, budget - kept_back)
                seats.append((request, request.num_computed + rows))
                budget -= rows
        return seats, budget

    def _walk(self) -> list[Request]:
        candidates = self.waiting[: self._limits.max_num_seqs]
        return sorted(self.running + candidates, key=by_rank) if candidates else list(self.running)

    def _grow(self, request: Request) -> bool:
        """Get pages for the known tokens of a running request; False when it had to be preempted itself."""
        need = num_pages_for(request.num_known, self._page_size) - len(request.pages)
        while need > self._pool.num_available:
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        if need > 0:
            request.add_pages(self._pool.allocate(need))
        return True

    def _admit(self, request: Request) -> bool:
        """Move a waiting request into the running line with pages for all its known tokens, or leave all as it was."""
        if not self._has_seat_for(request):
            return False
        hit = self._prefix.match(request)
        self._pool.hold(hit.pages)
        need = num_pages_for(request.num_known, self._page_size) - len(hit.pages)
        if not self._make_room(request, need):
            self._pool.release(hit.pages)
            return False
        self._counters.prefix_queried_tokens += request.num_known
        self._counters.prefix_hit_tokens += len(hit.pages) * self._page_size
        request.start_from(hit.pages, hit.num_draft_pages, self._page_size)
        request.add_pages(self._pool.allocate(need))
        self.waiting.remove(request)
        insort(self.running, request, key=by_rank)
        request.phase = Phase.RUNNING
        return True

    def _has_seat_for(self, request: Request) -> bool:
        return len(self.running) < self._limits.max_num_seqs or self.running[-1].rank[0] > request.rank[0]

    def _make_room(self, request: Request, need: int) -> bool:
        """Whether `need` pages are there, preempting lower priorities for them and a seat if, and only if, it helps.

        One page per running request stays available, as each may need its next page in the very next step.
        """
        weaker = [other for other in self.running if other.rank[0] > request.rank[0]]
        stronger = len(self.running) - len(weaker)
        reachable = self._pool.num_available + self._num_reclaimable(weaker)
        if need + stronger > reachable:
            return False
        while len(self.running) >= self._limits.max_num_seqs or (
            need + len(self.running) > self._pool.num_available and len(self.running) > stronger
        ):
            self._preempt(self.running[-1])
        return True

    def _num_reclaimable(self, requests: list[Request]) -> int:
        return sum(self._pool.num_references(page) == 1 for request in requests for page in request.pages)

    def _preempt(self, request: Request) -> None:
        """Back into the waiting line, pages given up, output kept: its known tokens are recomputed later."""
        self.running.remove(request)
        self._pool.release(request.take_pages(0))
        request.start_over()
        request.phase = Phase.WAITING
        request.num_preemptions += 1
        self._counters.preemptions += 1
        insort(self.waiting, request, key=by_rank)

    def _add_guesses(self, seats: list[tuple[Request, int]], budget: int) -> tuple[Ride, ...]:
        """Rides for all seats, with room for guesses where rows and pages are left."""
        rides = []
        for request, stop in seats:
            closes_gap = stop == request.num_known
            num_drafts = self._reserve_guesses(request, budget) if closes_gap else 0
            budget -= num_drafts
            rides.append(Ride(request, request.num_computed, stop, num_drafts, closes_gap))
        return tuple(rides)

    def _reserve_guesses(self, request: Request, budget: int) -> int:
        """K for one request: as many guesses as it wants, rows and pages allow and `max_tokens` can still use.

        The target's own token after the guesses takes one of the tokens left, so K <= num_left - 1.
        """
        wanted = min(request.num_draft_tokens, request.num_left - 1, budget)
        if wanted <= 0:
            return 0
        room = (len(request.pages) + self._pool.num_available) * self._page_size - request.num_known
        num_drafts = min(wanted, room)
        extra = num_pages_for(request.num_known + num_drafts, self._page_size) - len(request.pages)
        if extra > 0:
            request.add_pages(self._pool.allocate(extra))
        return num_drafts
