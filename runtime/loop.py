"""The loop: admit -> schedule -> draft -> run -> verify -> sample -> emit, one call each, one step a time.

In: requests (`submit`, `cancel`, from any thread). Out: each `step` returns what it added to whom. The loop owns pages,
lines and counters; engines and sampler come from outside, so tests drive it with a toy model. An event loop in here
lost: whoever calls `step` decides on threads (runtime/drive.py) and waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from .arrival import Reception
from .batch import BatchBuilder
from .chain import SampleChains, SampledToken
from .draft import Drafts, NgramDrafter, draft_for
from .draft_engine import DraftEngine
from .emit import Emission, end_request, take_tokens
from .engine import Engine, TimedEngine, check_pair
from .inbox import Inbox
from .pages import PagePool
from .plan import Ride, StepPlan
from .policies import Limits
from .prefix import PrefixCache
from .request import DraftMethod, Phase, Request, RequestOptions, TextWriter
from .sampling_params import SamplingParams
from .schedule import Scheduler
from .step_stats import Counters, StageClock, StepStats
from .verify import chains_for, num_accepted, num_valid, roll_back, segments_for

__all__ = ["Loop"]


class Loop:
    """One target engine, optionally a draft engine, and everybody who rides on them.

    `step` and everything below it belong to one thread; `submit` and `cancel` may be called from any. `last_step` holds
    the newest step's timing, `counters` the totals.
    """

    def __init__(
        self,
        target: Engine,
        sample: SampleChains,
        *,
        draft: Engine | None = None,
        limits: Limits | None = None,
        end_ids: frozenset[int] = frozenset(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits or Limits()
        self.counters = Counters()
        self.last_step: StepStats | None = None
        facts = target.facts
        self.pool = PagePool(target.num_pages)
        self.prefix = PrefixCache(self.pool, facts.page_size)
        self._scheduler = Scheduler(self.limits, self.pool, self.prefix, facts.page_size, self.counters)
        self._target = TimedEngine(target)
        self._builder = BatchBuilder(self.limits, facts)
        self._sample = sample
        self._ngram = NgramDrafter()
        if draft is not None:
            check_pair(target, draft)
        self._draft = TimedEngine(draft) if draft is not None else None
        self._draft_engine = DraftEngine(self._draft, facts, self.limits, sample) if self._draft else None
        methods = frozenset(DraftMethod) if draft is not None else frozenset(DraftMethod) - {DraftMethod.DRAFT}
        self._reception = Reception(facts, target.num_pages, self.limits, methods, end_ids)
        self._inbox = Inbox(self.limits.max_queue)
        self._clock = clock

    @property
    def has_work(self) -> bool:
        """Whether a `step` would do anything."""
        return bool(self._scheduler.running or self._scheduler.waiting) or not self._inbox.is_empty

    def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        options: RequestOptions | None = None,
        writer: TextWriter | None = None,
    ) -> Request:
        """Hand in a request; its first tokens come out of a later `step`.

        Raises: RequestError when it can never be served, CapacityError when the queue is full now.
        """
        request = self._reception.request(prompt_ids, params, options or RequestOptions(), writer, self._clock())
        self._inbox.put(request, len(self._scheduler.waiting))
        return request

    def cancel(self, request: Request) -> None:
        """End a request at the start of the next step, wherever it then is; no effect on one that has ended."""
        self._inbox.cancel(request)

    def step(self) -> list[Emission]:
        """One step for everybody who rides; returns new tokens and endings."""
        clock = StageClock()
        ended = self._admit()
        clock.mark()
        plan = self._scheduler.schedule()
        clock.mark()
        if not plan.rides:
            return ended
        drafts = draft_for(plan, self._ngram, self._draft_engine)
        clock.mark()
        logits = self._run(plan, drafts)
        clock.mark()
        chains = chains_for(plan, drafts)
        clock.mark()
        sampled = self._sample(logits, chains)
        clock.mark()
        emissions = self._emit(plan, drafts, sampled)
        clock.mark()
        self._account(clock, plan, drafts)
        return ended + emissions

    def _admit(self) -> list[Emission]:
        """Let arrivals into the line and take cancelled and late requests out of it."""
        intake = self._inbox.take(self._clock())
        for request in intake.arriving:
            self._scheduler.enqueue(request)
        ended = []
        for request, reason in intake.leaving:
            if request.phase is not Phase.FINISHED:
                self._scheduler.retire(request)
                ended.append(end_request(request, reason))
        return ended

    def _run(self, plan: StepPlan, drafts: Drafts) -> npt.NDArray[np.float32]:
        return self._target.run(self._builder.build(segments_for(plan, drafts)))

    def _emit(self, plan: StepPlan, drafts: Drafts, sampled: list[list[SampledToken]]) -> list[Emission]:
        """Grow the requests by their tokens, roll the counters back to what is valid, offer full pages, let go."""
        emissions = []
        outcomes = iter(sampled)
        for ride, guess in zip(plan.rides, drafts, strict=True):
            if ride.closes_gap:
                emissions.append(self._emit_tokens(ride, guess, next(outcomes)))
            else:
                roll_back(ride.request, ride.stop)
                self.prefix.publish(ride.request)
        return emissions

    def _emit_tokens(self, ride: Ride, guess: tuple[int, ...], sampled: list[SampledToken]) -> Emission:
        request, accepted = ride.request, num_accepted(sampled)
        emission = take_tokens(request, sampled)
        roll_back(request, num_valid(ride.stop, accepted))
        self.prefix.publish(request)
        if emission.finish_reason is None:
            self._scheduler.trim(request)
        else:
            self._scheduler.retire(request)
        self.counters.chains += 1
        self.counters.count_draft(len(guess), accepted)
        self.counters.output_tokens += len(emission.tokens)
        return emission

    def _account(self, clock: StageClock, plan: StepPlan, drafts: Drafts) -> None:
        num_rows = plan.num_rows + sum(map(len, drafts))
        self.counters.steps += 1
        self.counters.rows += num_rows
        self.last_step = StepStats(
            stage_s=clock.laps_s(),
            engine_s=self._target.take_s(),
            draft_engine_s=self._draft.take_s() if self._draft else 0.0,
            num_requests=len(plan.rides),
            num_rows=num_rows,
        )
