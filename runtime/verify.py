"""Which rows check which guesses, and what is valid in the caches afterwards. Functions on values, no engine.

In: a plan and its guesses. Out: segments for the engine, chains for the sampler, and after sampling the rolled-back
counters. With coupled sampling verification *is* sampling: the target draws its own token at every position until one
differs from the guess. Comparing probabilities (rejection sampling) lost as the default, since its output depends on
the draft.

A ride with known tokens up to n and guesses g0 .. g(K-1), of which a are accepted:

    row            n-1      n        ...   n+a-1     n+a       ...   n+K-1
    token in       known    g0             g(a-1)    g(a)            g(K-1)
    predicts       n        n+1            n+a       -               -
    cache valid    yes      yes            yes       no: g(a) was not chosen

The token at n + a is the target's own (the bonus): known from now on, but computed by nobody yet.
"""

from collections.abc import Sequence

from .batch import Segment
from .chain import Chain
from .draft import Drafts
from .plan import StepPlan
from .request import Request

__all__ = ["chains_for", "num_accepted", "num_valid", "roll_back", "segments_for"]


def segments_for(plan: StepPlan, drafts: Drafts) -> list[Segment]:
    """Rows of the target's run: known tokens, then guesses; logits for the last known row and every guess."""
    return [
        Segment(ride.request, ride.start, ride.stop, guess, 1 + len(guess) if ride.closes_gap else 0)
        for ride, guess in zip(plan.rides, drafts, strict=True)
    ]


def chains_for(plan: StepPlan, drafts: Drafts) -> list[Chain]:
    """One chain for every ride that closes its gap, over the logits rows that `segments_for` asked for."""
    chains = []
    row = 0
    for ride, guess in zip(plan.rides, drafts, strict=True):
        if ride.closes_gap:
            chains.append(Chain(row, guess, ride.request.state, ride.stop))
            row += 1 + len(guess)
    return chains


def num_valid(num_known_before: int, num_accepted: int) -> int:
    """Positions whose cache entries stay valid: the known tokens that were run and the accepted guesses behind them."""
    return num_known_before + num_accepted


def roll_back(request: Request, valid: int) -> None:
    """Set both computed counters to what is really valid, after the step's tokens were appended.

    `valid` may lie beyond a stop token inside the guesses. The draft's cache lacks the last guess when all were
    accepted, and whatever it had not caught up with: its counter only ever comes down here.
    """
    request.num_computed = min(valid, request.num_known)
    request.num_draft_computed = min(request.num_draft_computed, request.num_computed)


def num_accepted(sampled: Sequence[object]) -> int:
    """Guesses confirmed by a chain's outcome: all its tokens but the last, which is the target's own."""
    return len(sampled) - 1
