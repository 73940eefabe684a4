"""One step as decided: who rides, with how many rows. Made by schedule.py, read by every later stage, changed by none.

A plan is data: it can be logged, compared and replayed. A scheduler that fills arrays itself lost, because then a test
of a decision would need an engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from .request import Request

__all__ = ["Ride", "StepPlan"]


@dataclass(frozen=True, slots=True)
class Ride:
    """One request's part of a step: known tokens `start .. stop` are computed, `num_drafts` guesses may follow them.

    Only a ride that closes the gap (`stop == request.num_known` at planning time) is sampled from or drafted for;
    pages for all its rows, guesses included, are already held.
    """

    request: Request
    start: int
    stop: int
    num_drafts: int
    closes_gap: bool


@dataclass(frozen=True, slots=True)
class StepPlan:
    """All rides of one step, highest rank first, and how many requests were preempted to make it possible."""

    rides: tuple[Ride, ...]
    num_preempted: int

    @property
    def num_rows(self) -> int:
        """Rows of known tokens in the step."""
        return sum(ride.stop - ride.start for ride in self.rides)
