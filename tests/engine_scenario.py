"""Random traffic on compiled engines: every request must get the tokens that it gets alone, without speculation.

In: a pair of engines and a seed. Out: what went wrong, and counts of what the traffic really exercised. The oracle is
the same target engine serving one request at a time with nothing drafted and nothing shared, through a loop of its own.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from paceline.plugins.contract import GraphFacts
from paceline.runtime.batch import Batch
from paceline.runtime.engine import Engine
from paceline.runtime.loop import Loop
from paceline.runtime.policies import Limits
from paceline.runtime.request import DraftMethod, FinishReason, Request, RequestOptions
from paceline.runtime.sample import Sampler
from paceline.runtime.sampling_params import SamplingParams

__all__ = ["Pair", "run_scenario"]

MAX_STEPS = 20_000


@dataclass(frozen=True)
class Pair:
    """Engines under test, token lists that prompts are cut from, and the ids that end a text."""

    target: Engine
    draft: Engine
    texts: Sequence[Sequence[int]]
    end_ids: frozenset[int]
    longest_output: int


@dataclass(frozen=True)
class Narrowed:
    """An engine with fewer pages than it has, so that the loop runs out of them."""

    engine: Engine
    facts: GraphFacts
    num_pages: int

    def run(self, batch: Batch) -> np.ndarray:
        return self.engine.run(batch)


@dataclass(frozen=True)
class Asked:
    """One request; `cancel_step` None: it is left alone."""

    prompt: tuple[int, ...]
    params: SamplingParams
    options: RequestOptions
    arrival_step: int
    cancel_step: int | None


def run_scenario(pair: Pair, seed: int) -> Counter[str]:
    """Serve one random mix and compare; raises AssertionError naming the seed."""
    rng = Random(seed)
    asked = [_random_asked(rng, pair) for _ in range(rng.randint(3, 8))]
    loop = _random_loop(rng, pair, asked)
    served = _serve(loop, asked)
    for one, request in zip(asked, served, strict=True):
        expected = _alone(pair, one)
        got = request.output_ids
        if request.finish_reason is FinishReason.CANCELLED:
            expected = expected[: len(got)]
        assert got == expected, f"scenario {seed}, {one}: got {got}, alone {expected}"
    assert loop.pool.num_held == 0, f"scenario {seed}: pages leaked"
    loop.pool.drop_cached()
    loop.pool.check()
    counters = loop.counters
    return Counter(
        tokens=sum(len(request.output_ids) for request in served),
        cancelled=sum(request.finish_reason is FinishReason.CANCELLED for request in served),
        preempted=counters.preemptions,
        hit=counters.prefix_hit_tokens,
        accepted=counters.accepted_tokens,
        rejected=counters.draft_tokens - counters.accepted_tokens,
    )


def _random_asked(rng: Random, pair: Pair) -> Asked:
    text = rng.choice(pair.texts)
    length = rng.randint(1, min(len(text), 70))
    return Asked(
        prompt=tuple(text[:length]) * rng.choice((1, 1, 2)),  # a doubled prompt gives the n-gram lookup something
        params=_random_params(rng, pair.longest_output),
        options=RequestOptions(
            priority=rng.choice((0, 0, 0, 1)),
            drafting=rng.choice(tuple(DraftMethod)),
            num_draft_tokens=rng.randint(0, 8),
        ),
        arrival_step=rng.randint(0, 12),
        cancel_step=rng.randint(2, 25) if rng.random() < 0.1 else None,
    )


def _random_params(rng: Random, longest_output: int) -> SamplingParams:
    params = SamplingParams(
        max_tokens=rng.randint(1, longest_output),
        temperature=rng.choice((0.0, 0.0, 0.3, 0.7, 1.0)),
        seed=rng.getrandbits(64),
        ignore_eos=rng.random() < 0.8,
    )
    options: tuple[dict[str, object], ...] = (
        {},
        {"top_k": 20},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"repetition_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": 0.2},
        {"logit_bias": {5: 3.0, 40: -100.0}},
        {"top_k": 50, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.1},
    )
    return replace(params, **rng.choice(options))


def _random_loop(rng: Random, pair: Pair, asked: Sequence[Asked]) -> Loop:
    page_size = pair.target.facts.page_size
    longest = max(len(one.prompt) + one.params.max_tokens for one in asked)
    num_pages = min(pair.target.num_pages, -(-longest // page_size) + rng.choice((1, 3, 8, 100)))
    max_num_seqs = rng.randint(1, 6)
    limits = Limits(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max(max_num_seqs, rng.choice((8, 16, 64, 256))),
        max_chunk_tokens=rng.choice((1, 5, 16, 64, 256)),
    )
    target, draft = (Narrowed(engine, engine.facts, num_pages) for engine in (pair.target, pair.draft))
    return Loop(target, Sampler(), draft=draft, limits=limits, end_ids=pair.end_ids)


def _serve(loop: Loop, asked: Sequence[Asked]) -> list[Request]:
    served: dict[int, Request] = {}
    for step in range(MAX_STEPS):
        for i, one in enumerate(asked):
            if one.arrival_step == step:
                served[i] = loop.submit(one.prompt, one.params, one.options)
            if one.cancel_step == step and i in served:
                loop.cancel(served[i])
        loop.step()
        loop.pool.check()
        if len(served) == len(asked) and not loop.has_work:
            return [served[i] for i in range(len(asked))]
    raise AssertionError("the loop makes no progress")


def _alone(pair: Pair, one: Asked) -> list[int]:
    loop = Loop(pair.target, Sampler(), limits=Limits(max_num_seqs=1), end_ids=pair.end_ids)
    request = loop.submit(one.prompt, one.params, RequestOptions())
    for _ in range(MAX_STEPS):
        if not loop.has_work:
            return request.output_ids
        loop.step()
    raise AssertionError("a request alone makes no progress")
