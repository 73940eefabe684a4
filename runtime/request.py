"""One request from arrival to its last token: the noun that every stage of the loop reads and writes.

A request has *known* tokens (prompt + output) and *computed* tokens (those whose keys and values lie in its pages). A
step closes the gap. Prefill, decode, a return after preemption and a prefix hit differ in nothing but the size of the
gap; a state machine with a phase for each of them lost for that reason.

    0 .. num_computed .. num_known          target's cache valid | to be computed
    0 .. num_draft_computed .. num_known    the same for the draft's cache, never ahead of the target's after a step
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from .chain import SamplerState
from .draft_ngram import LONGEST, SHORTEST, NgramIndex

__all__ = ["DraftMethod", "FinishReason", "Phase", "Request", "RequestOptions", "TextWriter"]


class Phase(Enum):
    """Where a request is; only RUNNING ones hold pages."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class FinishReason(StrEnum):
    """Why a request ended; STOP and LENGTH as in OpenAI's API."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"


class DraftMethod(StrEnum):
    """Who guesses a request's next tokens; AUTO takes n-gram lookup where it finds a match, else the draft engine."""

    NONE = "none"
    NGRAM = "ngram"
    DRAFT = "draft"
    AUTO = "auto"


class TextWriter(Protocol):
    """One request's tokens becoming text (runtime/detokenize.py); knows the request's stop strings."""

    @property
    def stopped(self) -> bool:
        """Whether a stop string is complete; nothing may be pushed after that."""

    def push(self, token_id: int) -> str:
        """Take one more token and return the text that is now certain, often none."""

    def flush(self) -> str:
        """The rest of the text, held back so far, at the end of the request."""


@dataclass(frozen=True)
class RequestOptions:
    """How a request is to be served, next to what it asks of sampling.

    Higher `priority` goes first. `deadline_s` bounds the whole life from arrival, `queue_timeout_s` the time until the
    first token is computed. `num_draft_tokens` is K, at most so many guesses a step. n-gram lookup matches suffixes of
    `lookup_max` down to `lookup_min` tokens.
    """

    priority: int = 0
    deadline_s: float = math.inf
    queue_timeout_s: float = math.inf
    drafting: DraftMethod = DraftMethod.NONE
    num_draft_tokens: int = 4
    lookup_min: int = SHORTEST
    lookup_max: int = LONGEST


@dataclass(slots=True, eq=False)
class Request:
    """State of one request; `rank` orders requests: higher priority first, then first come first served.

    `page_row` repeats `pages` as int32 [max_pages] padded with 0, ready to be copied into a step's page table.
    `num_published` and `num_draft_published` count pages the prefix cache has already been told of.
    """

    request_id: int
    rank: tuple[int, int]
    state: SamplerState
    options: RequestOptions
    stop_ids: frozenset[int]
    arrival_s: float
    page_row: npt.NDArray[np.int32]
    writer: TextWriter | None = None
    ngrams: NgramIndex | None = None
    phase: Phase = Phase.WAITING
    finish_reason: FinishReason | None = None
    pages: list[int] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    num_computed: int = 0
    num_draft_computed: int = 0
    num_published: int = 0
    num_draft_published: int = 0
    num_preemptions: int = 0
    has_started: bool = False
    token_ids: array[int] = field(init=False)

    def __post_init__(self) -> None:
        self.token_ids = self.state.token_ids  # the same array: prompt, then output

    @property
    def num_known(self) -> int:
        """Prompt and output tokens so far."""
        return len(self.token_ids)

    @property
    def num_left(self) -> int:
        """Output tokens that `max_tokens` still allows."""
        return self.state.params.max_tokens - self.state.num_output

    @property
    def num_draft_tokens(self) -> int:
        """K: at most so many guesses a step."""
        return 0 if self.options.drafting is DraftMethod.NONE else self.options.num_draft_tokens

    @property
    def output_ids(self) -> list[int]:
        """A copy of the output tokens."""
        return self.token_ids[self.state.num_prompt :].tolist()

    def add_pages(self, pages: Iterable[int]) -> None:
        """Append pages that the caller has allocated or taken hold of."""
        for page in pages:
            self.page_row[len(self.pages)] = page
            self.pages.append(page)

    def take_pages(self, count: int) -> list[int]:
        """Part with the pages from index `count` on; the caller releases them."""
        surplus = self.pages[count:]
        if surplus:
            self.page_row[count : len(self.pages)] = 0
            del self.pages[count:]
        return surplus

    def start_from(self, pages: Sequence[int], num_draft_pages: int, page_size: int) -> None:
        """Begin on pages of a prefix hit: their tokens count as computed, in the draft's cache the first ones only."""
        self.add_pages(pages)
        self.num_computed = len(pages) * page_size
        self.num_draft_computed = num_draft_pages * page_size
        self.num_published = len(pages)
        self.num_draft_published = num_draft_pages
        self.has_started = True

    def start_over(self) -> None:
        """Forget what was computed, keep what is known: after preemption the pages are gone, the output is not."""
        self.num_computed = self.num_draft_computed = 0
        self.num_published = self.num_draft_published = 0
