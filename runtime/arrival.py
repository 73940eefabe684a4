"""From what a caller asks to a `Request`: everything that can be refused is refused here, before it waits.

In: prompt token ids, sampling params, options. Out: a request with its seed drawn, its n-gram index built and its page
row ready. Building the index lazily in the loop lost: a long prompt would then stall a step for everybody.
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Sequence
from itertools import count

import numpy as np

from ..plugins.contract import GraphFacts
from .chain import SamplerState
from .draft_ngram import NgramIndex
from .errors import RequestError
from .pages import num_pages_for
from .policies import Limits, check_fits
from .request import DraftMethod, Request, RequestOptions, TextWriter
from .sampling_params import SamplingParams

__all__ = ["Reception"]

GUESSING_BY_TEXT = (DraftMethod.NGRAM, DraftMethod.AUTO)


class Reception:
    """Checks and builds requests for one engine pair; `end_ids` end every request that does not ignore them."""

    def __init__(
        self,
        facts: GraphFacts,
        num_pages: int,
        limits: Limits,
        drafting: frozenset[DraftMethod],
        end_ids: frozenset[int],
    ) -> None:
        self._facts = facts
        self._num_pages = num_pages
        self._limits = limits
        self._drafting = drafting
        self._end_ids = end_ids
        self._ids = count()

    def request(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        options: RequestOptions,
        writer: TextWriter | None,
        now_s: float,
    ) -> Request:
        """A new request, ready to be handed in.

        Raises: RequestError for anything that can never be served: empty or foreign prompt, too long, bad options.
        """
        self._check(prompt_ids, params, options)
        request_id = next(self._ids)
        token_ids = array("q", prompt_ids)
        seed = secrets.randbits(64) if params.seed is None else params.seed
        facts = self._facts
        return Request(
            request_id=request_id,
            rank=(-options.priority, request_id),
            state=SamplerState(params, seed, token_ids, len(token_ids)),
            options=options,
            stop_ids=frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._end_ids),
            arrival_s=now_s,
            page_row=np.zeros(num_pages_for(facts.max_positions, facts.page_size), np.int32),
            writer=writer,
            ngrams=NgramIndex(token_ids, options.lookup_max, options.lookup_min)
            if options.drafting in GUESSING_BY_TEXT
            else None,
        )

    def _check(self, prompt_ids: Sequence[int], params: SamplingParams, options: RequestOptions) -> None:
        params.check(self._facts.vocab_size)
        check_fits(
            len(prompt_ids),
            params,
            max_positions=self._facts.max_positions,
            page_size=self._facts.page_size,
            num_pages=self._num_pages,
        )
        strange = next((i for i in prompt_ids if not 0 <= i < self._facts.vocab_size), None)
        if strange is not None:
            raise RequestError(
                f"token id {strange} in the prompt",
                needed=f"ids from 0 to {self._facts.vocab_size - 1}",
                do="encode the prompt with the bundle's own tokenizer",
            )
        self._check_options(options)

    def _check_options(self, options: RequestOptions) -> None:
        if options.drafting not in self._drafting:
            raise RequestError(
                f"drafting = {options.drafting.value}",
                needed=f"one of {', '.join(sorted(self._drafting))}: this bundle has no draft engine",
                do="choose another method, or build the bundle with a draft",
            )
        if not 0 <= options.num_draft_tokens <= self._limits.max_draft_tokens:
            raise RequestError(
                f"num_draft_tokens = {options.num_draft_tokens}",
                needed=f"0 to {self._limits.max_draft_tokens}",
                do="change num_draft_tokens, or raise the limit max_draft_tokens",
            )
        if options.deadline_s <= 0 or options.queue_timeout_s <= 0:
            raise RequestError(
                f"deadline_s = {options.deadline_s}, queue_timeout_s = {options.queue_timeout_s}",
                needed="more than 0 seconds",
                do="raise them or leave them out",
            )
