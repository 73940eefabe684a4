"""Random traffic for the loop, and what each request must get: its tokens when it runs alone, without any machinery.

In: a seed. Out: a `Scenario` (limits, engines, who arrives when and asks what), its `run`, and the oracle `alone`,
which uses neither loop nor pages nor drafts: just the toy model on the bare list of tokens.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random

import numpy as np
import toy_sampler
from toy_engine import MAX_POSITIONS, VOCAB, ToyEngine

from paceline.runtime.chain import Chain, SamplerState
from paceline.runtime.loop import Loop
from paceline.runtime.policies import Limits
from paceline.runtime.request import DraftMethod, FinishReason, Request, RequestOptions
from paceline.runtime.sampling_params import SamplingParams

MAX_STEPS = 5000


@dataclass(frozen=True)
class Asked:
    """One request as its caller would write it down; `cancel_step` None: it is left alone."""

    prompt: tuple[int, ...]
    params: SamplingParams
    options: RequestOptions
    arrival_step: int
    cancel_step: int | None


@dataclass(frozen=True)
class Scenario:
    """Everything that happens in one run."""

    asked: tuple[Asked, ...]
    limits: Limits
    num_pages: int
    page_size: int
    draft_agreement: float


@dataclass
class Outcome:
    """What one run did; `wrong` lists requests whose tokens are not those they get alone."""

    loop: Loop
    num_tokens: int = 0
    wrong: list[str] = field(default_factory=list)
    num_cancelled: int = 0


def make_scenario(seed: int) -> Scenario:
    """A random mix; most are short of pages, half have tiny chunks."""
    rng = Random(seed)
    page_size = rng.choice((1, 2, 4, 4, 8))
    heads = [_random_tokens(rng, rng.randint(4, 30)) for _ in range(2)]
    asked = tuple(_random_asked(rng, heads) for _ in range(rng.randint(3, 10)))
    longest = max(len(a.prompt) + a.params.max_tokens for a in asked)
    fitting = -(-longest // page_size)
    max_num_seqs = rng.randint(1, 6)
    return Scenario(
        asked=asked,
        limits=Limits(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max(max_num_seqs, rng.choice((4, 8, 16, 64, 256))),
            max_chunk_tokens=rng.choice((1, 2, 3, 7, 64, 256)),
        ),
        num_pages=fitting + rng.choice((0, 1, 3, 10, 200)),
        page_size=page_size,
        draft_agreement=rng.choice((0.0, 0.6, 0.6, 1.0)),
    )


def run_scenario(scenario: Scenario, sample: Callable = toy_sampler.sample_chains) -> Outcome:
    """Serve it to the end, checking the pool after each step, and compare every request with the oracle."""
    target = ToyEngine(scenario.num_pages, scenario.page_size)
    draft = ToyEngine(scenario.num_pages, scenario.page_size, scenario.draft_agreement)
    outcome = Outcome(Loop(target, sample, draft=draft, limits=scenario.limits, end_ids=frozenset({0})))
    served = _serve(outcome.loop, scenario)
    for asked, request in served:
        outcome.num_tokens += len(request.output_ids)
        outcome.num_cancelled += request.finish_reason is FinishReason.CANCELLED
        outcome.wrong.extend(_complaints(asked, request))
    _check_nothing_leaked(outcome.loop)
    return outcome


def alone(prompt: tuple[int, ...], params: SamplingParams) -> list[int]:
    """The tokens of a request that runs alone: one row after the other, no loop, no pages, no guesses."""
    return list(_alone(prompt, replace(params, logit_bias=_Frozen(params.logit_bias))))


class _Frozen(dict):
    """A dict that may be part of a cache key."""

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.items())))


@cache
def _alone(prompt: tuple[int, ...], params: SamplingParams) -> tuple[int, ...]:
    state = SamplerState(params, params.seed, array("q", prompt), len(prompt))
    stops = {*params.stop_token_ids} | (set() if params.ignore_eos else {0})
    model = ToyEngine(1)
    while state.num_output < params.max_tokens:
        row = model.answer_to(np.array(state.token_ids))
        chain = Chain(0, (), state, len(state.token_ids))
        state.append(toy_sampler.choose(row, chain, list(state.token_ids), chain.position))
        if state.token_ids[-1] in stops:
            break
    return tuple(state.token_ids[len(prompt) :])


def _serve(loop: Loop, scenario: Scenario) -> list[tuple[Asked, Request]]:
    served: dict[int, tuple[Asked, Request]] = {}
    step = 0
    while loop.has_work or len(served) < len(scenario.asked):
        for i, asked in enumerate(scenario.asked):
            if asked.arrival_step == step:
                served[i] = (asked, loop.submit(asked.prompt, asked.params, asked.options))
            if asked.cancel_step == step and i in served:
                loop.cancel(served[i][1])
        loop.step()
        loop.pool.check()
        step += 1
        assert step < MAX_STEPS, "the loop makes no progress"
    return list(served.values())


def _complaints(asked: Asked, request: Request) -> list[str]:
    expected = alone(asked.prompt, asked.params)
    got = request.output_ids
    if request.finish_reason is FinishReason.CANCELLED:
        expected = expected[: len(got)]
    return [] if got == expected else [f"request {request.request_id} ({asked}): got {got}, alone {expected}"]


def _check_nothing_leaked(loop: Loop) -> None:
    assert loop.pool.num_held == 0, "a request ended without giving its pages back"
    loop.pool.drop_cached()
    loop.pool.check()
    assert len(loop.pool.allocate(loop.pool.num_pages)) == loop.pool.num_pages


def _random_tokens(rng: Random, count: int) -> tuple[int, ...]:
    return tuple(rng.randrange(1, VOCAB) for _ in range(count))


def _random_asked(rng: Random, heads: list[tuple[int, ...]]) -> Asked:
    head = rng.choice(heads)
    prompt = head[: rng.randint(1, len(head))] if rng.random() < 0.6 else ()
    prompt += _random_tokens(rng, rng.randint(0 if prompt else 1, 12))
    if rng.random() < 0.2:
        prompt = (prompt * 6)[:40]  # text that repeats itself, for n-gram look-up
    return Asked(
        prompt=prompt,
        params=_random_params(rng, rng.randint(1, min(70, MAX_POSITIONS - len(prompt)))),
        options=RequestOptions(
            priority=rng.choice((0, 0, 0, 1, 2)),
            drafting=rng.choice(tuple(DraftMethod)),
            num_draft_tokens=rng.randint(0, 8),
        ),
        arrival_step=rng.choice((0, 0, rng.randint(0, 40))),
        cancel_step=rng.randint(0, 60) if rng.random() < 0.15 else None,
    )


def _random_params(rng: Random, max_tokens: int) -> SamplingParams:
    def sometimes(*values):
        return rng.choice(values) if rng.random() < 0.3 else values[0]

    return SamplingParams(
        max_tokens=max_tokens,
        temperature=rng.choice((0.0, 0.3, 0.7, 1.0)),
        top_k=sometimes(0, 1, 5, 20),
        top_p=sometimes(1.0, 0.5, 0.9),
        min_p=sometimes(0.0, 0.05, 0.3),
        repetition_penalty=sometimes(1.0, 1.2, 0.8),
        presence_penalty=sometimes(0.0, 0.5, -0.5),
        frequency_penalty=sometimes(0.0, 0.3, -0.2),
        logit_bias=sometimes({}, {3: 2.0, 7: -4.0}, {0: 3.0}),
        seed=rng.getrandbits(64),
        stop_token_ids=sometimes((), (5,), (11, 12)),
        ignore_eos=rng.random() < 0.5,
    )
