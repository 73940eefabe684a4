"""What the loop measures about itself: seconds by stage for one step, and counters that only ever grow.

The loop writes, benchmarks and metrics read. A metrics library inside the loop lost: names and labels are the serving
layer's affair, and a counter here is one integer addition.
"""

import time
from dataclasses import dataclass, field

__all__ = ["STAGES", "Counters", "StageClock", "StepStats"]

STAGES = ("admit", "schedule", "draft", "run", "verify", "sample", "emit")


@dataclass(slots=True)
class Counters:
    """Totals since the loop began. `drafted_at[j]` counts guesses made at depth j, `accepted_at[j]` those accepted."""

    steps: int = 0
    rows: int = 0
    output_tokens: int = 0
    chains: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    drafted_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    preemptions: int = 0
    prefix_queried_tokens: int = 0
    prefix_hit_tokens: int = 0

    def count_draft(self, num_drafted: int, num_accepted: int) -> None:
        """Add the outcome of one request's verification; nothing when nothing was guessed."""
        if num_drafted == 0:
            return
        while len(self.drafted_at) < num_drafted:
            self.drafted_at.append(0)
            self.accepted_at.append(0)
        self.drafts += 1
        self.draft_tokens += num_drafted
        self.accepted_tokens += num_accepted
        for depth in range(num_drafted):
            self.drafted_at[depth] += 1
        for depth in range(num_accepted):
            self.accepted_at[depth] += 1


@dataclass(frozen=True, slots=True)
class StepStats:
    """One step: seconds by stage in the order of `STAGES`; the engines took `engine_s` and `draft_engine_s` of them."""

    stage_s: tuple[float, ...]
    engine_s: float
    draft_engine_s: float
    num_requests: int
    num_rows: int

    @property
    def host_s(self) -> float:
        """Seconds outside both engines."""
        return sum(self.stage_s) - self.engine_s - self.draft_engine_s


class StageClock:
    """Seconds between marks; one instance lives for one step."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks = [time.perf_counter()]

    def mark(self) -> None:
        """End the current stage."""
        self._marks.append(time.perf_counter())

    def laps_s(self) -> tuple[float, ...]:
        """Seconds of each ended stage, in order."""
        return tuple(after - before for before, after in zip(self._marks, self._marks[1:], strict=False))
