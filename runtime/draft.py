"""Who guesses: one protocol for all drafting methods, and the choice among them, request by request.

In: a step's plan, with the number of guesses that each ride has room for. Out: the guesses, in the order of the rides.
A guess can only ever cost time: verification makes every token the target's own, so methods mix freely in one step.
"""

from collections.abc import Sequence
from typing import Protocol

from .plan import Ride, StepPlan
from .request import DraftMethod

__all__ = ["Drafter", "Drafts", "NgramDrafter", "draft_for"]

Drafts = list[tuple[int, ...]]
"""One entry a ride, in order; at most `ride.num_drafts` guesses, none where nothing came to mind."""


class Drafter(Protocol):
    """One way of guessing."""

    def propose(self, rides: Sequence[Ride]) -> Drafts:
        """Guesses for the tokens after the known ones of each ride; every ride closes its gap and has room for some."""


class NgramDrafter:
    """Looks up each request's last tokens in its own text."""

    def propose(self, rides: Sequence[Ride]) -> Drafts:
        """As `Drafter.propose`; costs a few dictionary look-ups a request."""
        return [ride.request.ngrams.propose(ride.num_drafts) if ride.request.ngrams else () for ride in rides]


def draft_for(plan: StepPlan, ngram: Drafter, engine: Drafter | None) -> Drafts:
    """Guesses for all rides of a step, each by its request's method.

    AUTO asks the n-gram lookup first, because it is free and right where it finds something; the draft engine then
    runs once, for everybody who still has no guess and would take one from it.
    """
    drafts: Drafts = [()] * len(plan.rides)
    _fill(drafts, plan, ngram, (DraftMethod.NGRAM, DraftMethod.AUTO))
    if engine is not None:
        _fill(drafts, plan, engine, (DraftMethod.DRAFT, DraftMethod.AUTO))
    return drafts


def _fill(drafts: Drafts, plan: StepPlan, drafter: Drafter, methods: tuple[DraftMethod, ...]) -> None:
    asked = [
        i
        for i, ride in enumerate(plan.rides)
        if ride.num_drafts > 0 and not drafts[i] and ride.request.options.drafting in methods
    ]
    if asked:
        for i, guess in zip(asked, drafter.propose([plan.rides[i] for i in asked]), strict=True):
            drafts[i] = guess
