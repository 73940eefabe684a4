"""Drafting with a second, smaller engine that has its own cache on the same page ids.

In: rides with room for guesses. Out: up to K guesses each, sampled from the draft's logits through the *same* pipeline
with the *same* noise (seed, position, token id) as the target's, so that the draft guesses the target's very sample
(Daliri et al. 2024, coupling without communication).

    draft's cache     0 .. num_draft_computed .. num_known     valid | missing
    first run         computes the missing rows of everybody (a ragged batch); the last one gives guess 1
    runs 2 .. K       one row a request, guess j in, guess j + 1 out; guess K itself is never computed

A draft that rides along with every prefill chunk lost: it would delay first tokens for requests that may never draft.
The missing rows of one step are bounded like the target's; who has not caught up yet simply gets no guess.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..plugins.contract import GraphFacts
from .batch import BatchBuilder, Segment, rows_in
from .chain import Chain, SampleChains
from .draft import Drafts
from .engine import Engine
from .plan import Ride
from .policies import Limits

__all__ = ["DraftEngine"]


@dataclass(slots=True, eq=False)
class _Guesser:
    """One ride while it is being drafted for."""

    ride: Ride
    guess: list[int] = field(default_factory=list)

    def missing_rows(self, most: int) -> Segment:
        """Known tokens that the draft's cache lacks, `most` of them at the most."""
        request = self.ride.request
        stop = min(request.num_known, request.num_draft_computed + most)
        return Segment(request, request.num_draft_computed, stop, (), int(stop == request.num_known))

    def next_row(self) -> Segment:
        """The last guess as a row of its own."""
        position = self.ride.request.num_known + len(self.guess) - 1
        return Segment(self.ride.request, position, position, (self.guess[-1],), 1)

    def chain(self, row: int) -> Chain:
        """What samples the next guess from logits row `row`."""
        request = self.ride.request
        return Chain(row, (), request.state, request.num_known + len(self.guess), tuple(self.guess))


class DraftEngine:
    """A `Drafter` on top of an engine; `target` describes the engine whose page ids and vocabulary it shares."""

    def __init__(self, engine: Engine, target: GraphFacts, limits: Limits, sample: SampleChains) -> None:
        self._engine = engine
        self._vocab_size = target.vocab_size
        self._max_rows = limits.max_num_batched_tokens
        self._sample = sample
        self._builder = BatchBuilder(limits, target)

    def propose(self, rides: Sequence[Ride]) -> Drafts:
        """As `Drafter.propose`; advances `num_draft_computed` over all rows that it computes, guesses included."""
        guessers = [_Guesser(ride) for ride in rides]
        active = [
            g for g in guessers if g.ride.request.num_known + g.ride.num_drafts <= self._engine.facts.max_positions
        ]
        if active:
            active = self._advance(active, self._missing_rows(active))
        while active:
            active = self._advance(active, [g.next_row() for g in active])
        return [tuple(g.guess) for g in guessers]

    def _missing_rows(self, guessers: Sequence[_Guesser]) -> list[Segment]:
        """One segment each, within the budget of rows; one row is kept back for everybody behind."""
        segments = []
        budget = self._max_rows
        for num_behind, guesser in zip(range(len(guessers) - 1, -1, -1), guessers, strict=True):
            segment = guesser.missing_rows(budget - num_behind)
            budget -= rows_in(segment)
            segments.append(segment)
        return segments

    def _advance(self, guessers: Sequence[_Guesser], segments: Sequence[Segment]) -> list[_Guesser]:
        """Run one segment for each guesser, add a guess to those that have caught up; returns who wants another."""
        logits = self._engine.run(self._builder.build(segments))
        for segment in segments:
            segment.request.num_draft_computed += rows_in(segment)
        caught_up = [g for g, segment in zip(guessers, segments, strict=True) if segment.num_logits]
        sampled = self._sample(logits, [g.chain(row) for row, g in enumerate(caught_up)]) if caught_up else []
        return [g for g, tokens in zip(caught_up, sampled, strict=True) if self._take(g, tokens[0].token_id)]

    def _take(self, guesser: _Guesser, token_id: int) -> bool:
        """Append a guess; False when this was the last: K is reached, or the target has no embedding for the id."""
        if token_id >= self._vocab_size:
            return False
        guesser.guess.append(token_id)
        return len(guesser.guess) < guesser.ride.num_drafts
