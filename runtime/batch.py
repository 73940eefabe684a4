"""From decisions to arrays: the only place where a step becomes tensors under the contract's names.

In: segments, one a request, each a run of rows to compute. Out: a `Batch` whose arrays are views into buffers that are
allocated once. Target and draft engine use the same builder: a prefill chunk, a decode row, a verification of 1 + K
rows and a draft's single step are all segments. New arrays a step lost: they cost more than filling them.

    rows of a segment:   start .. stop            known tokens, read from the request
                         stop .. stop + len(guess)   drafted tokens behind them
    logits are wanted for its last `num_logits` rows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..plugins.contract import GraphFacts
from .pages import num_pages_for
from .policies import Limits
from .request import Request

__all__ = ["Batch", "BatchBuilder", "Segment", "rows_in"]

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's inputs, shapes and dtypes as plugins/contract.py says; valid until the builder's next `build`."""

    input_ids: Int64s
    positions: Int64s
    query_start: Int32s
    context_len: Int32s
    page_table: Int32s
    logit_rows: Int64s


class Segment(NamedTuple):
    """Rows of one request: its known tokens from `start` to `stop`, then `guess`; see the table above."""

    request: Request
    start: int
    stop: int
    guess: tuple[int, ...]
    num_logits: int


def rows_in(segment: Segment) -> int:
    """Rows that a segment adds to the step."""
    return segment.stop - segment.start + len(segment.guess)


class BatchBuilder:
    """Fills one set of buffers, sized for the largest step; `facts` are the target's, whose page table all share."""

    def __init__(self, limits: Limits, facts: GraphFacts) -> None:
        rows, seqs = limits.max_num_batched_tokens, limits.max_num_seqs
        self._input_ids = np.zeros(rows, np.int64)
        self._positions = np.zeros(rows, np.int64)
        self._logit_rows = np.zeros(rows, np.int64)
        self._query_start = np.zeros(seqs + 1, np.int32)
        self._context_len = np.zeros(seqs, np.int32)
        self._page_table = np.zeros((seqs, num_pages_for(facts.max_positions, facts.page_size)), np.int32)
        self._counting = np.arange(facts.max_positions, dtype=np.int64)

    def build(self, segments: Sequence[Segment]) -> Batch:
        """Arrays for one run of an engine; `segments` must not be empty."""
        row = num_logits = 0
        for i, segment in enumerate(segments):
            end = row + rows_in(segment)
            assert end - row >= max(1, segment.num_logits), "a counter says computed where nothing was"
            self._fill_rows(segment, row, end)
            self._context_len[i] = segment.stop + len(segment.guess)
            self._query_start[i + 1] = end
            self._page_table[i] = segment.request.page_row
            for logit_row in range(end - segment.num_logits, end):
                self._logit_rows[num_logits] = logit_row
                num_logits += 1
            row = end
        return Batch(
            input_ids=self._input_ids[:row],
            positions=self._positions[:row],
            query_start=self._query_start[: len(segments) + 1],
            context_len=self._context_len[: len(segments)],
            page_table=self._page_table[: len(segments)],
            logit_rows=self._logit_rows[:num_logits],
        )

    def _fill_rows(self, segment: Segment, row: int, end: int) -> None:
        split = row + segment.stop - segment.start
        self._input_ids[row:split] = segment.request.token_ids[segment.start : segment.stop]
        if segment.guess:
            self._input_ids[split:end] = segment.guess
        self._positions[row:end] = self._positions_of(segment)

    def _positions_of(self, segment: Segment) -> Int64s:
        return self._counting[segment.start : segment.stop + len(segment.guess)]
