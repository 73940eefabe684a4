"""Short ways to build toy requests and loops for the runtime's tests."""

from array import array

import numpy as np
from toy_engine import PAGE_SIZE, ToyEngine
from toy_sampler import sample_chains

from paceline.runtime.chain import SamplerState
from paceline.runtime.draft_ngram import NgramIndex
from paceline.runtime.emit import Emission
from paceline.runtime.loop import Loop
from paceline.runtime.policies import Limits
from paceline.runtime.request import DraftMethod, Request, RequestOptions
from paceline.runtime.sampling_params import SamplingParams


def toy_request(
    num_prompt: int | list[int],
    *,
    request_id: int = 0,
    drafting: DraftMethod = DraftMethod.NONE,
    priority: int = 0,
    k: int = 4,
    stop_ids: frozenset[int] = frozenset(),
    **params,
) -> Request:
    """A request with the given prompt, or a prompt 1, 2, 3, ... of that length."""
    prompt = num_prompt if isinstance(num_prompt, list) else list(range(1, num_prompt + 1))
    token_ids = array("q", prompt)
    return Request(
        request_id=request_id,
        rank=(-priority, request_id),
        state=SamplerState(SamplingParams(**params), 1, token_ids, len(token_ids)),
        options=RequestOptions(priority=priority, drafting=drafting, num_draft_tokens=k),
        stop_ids=stop_ids,
        arrival_s=0.0,
        page_row=np.zeros(64, np.int32),
        ngrams=NgramIndex(token_ids) if drafting in (DraftMethod.NGRAM, DraftMethod.AUTO) else None,
    )


def toy_loop(num_pages: int = 64, *, draft: ToyEngine | None = None, sample=sample_chains, clock=None, **limits):
    """A loop over a toy target, with the toy's end token 0."""
    target = ToyEngine(num_pages, PAGE_SIZE)
    timing = {"clock": clock} if clock else {}
    return Loop(target, sample, draft=draft, limits=Limits(**limits), end_ids=frozenset({0}), **timing)


def run_to_end(loop: Loop) -> list[Emission]:
    """All emissions until nothing is left to do; checks the pool after each step."""
    emissions = []
    while loop.has_work:
        emissions += loop.step()
        loop.pool.check()
    return emissions
