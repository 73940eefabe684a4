"""The draft engine's cache: a draft equal to the target is always right, whatever happened to its cache before.

Wrong draft caches cannot change tokens, so the same-tokens tests are blind to them. Here the draft is the target's
twin: any stale, missing or foreign row in its cache shows as a rejected guess.
"""

from dataclasses import replace

import pytest
from toy_engine import PAGE_SIZE, VOCAB, ToyEngine
from toy_requests import run_to_end, toy_loop
from toy_sampler import sample_chains
from toy_scenario import make_scenario, run_scenario

from paceline.runtime.chain import SampledToken
from paceline.runtime.loop import Loop
from paceline.runtime.request import DraftMethod, RequestOptions
from paceline.runtime.sampling_params import SamplingParams

DRAFT = RequestOptions(drafting=DraftMethod.DRAFT, num_draft_tokens=4)


def twin_scenario(seed, method):
    scenario = make_scenario(seed)
    asked = tuple(
        replace(a, options=replace(a.options, drafting=method, num_draft_tokens=max(1, a.options.num_draft_tokens)))
        for a in scenario.asked
    )
    return replace(scenario, asked=asked, draft_agreement=1.0)


def test_twin_is_always_right_through_chunks_preemption_and_prefix_hits():
    drafted = preempted = hit = 0
    for seed in range(60):
        counters = run_scenario(twin_scenario(seed, DraftMethod.DRAFT)).loop.counters
        stopped_early = counters.draft_tokens - counters.accepted_tokens
        assert stopped_early == 0, f"scenario {seed}: {stopped_early} guesses of a perfect draft were rejected"
        drafted += counters.draft_tokens
        preempted += counters.preemptions
        hit += counters.prefix_hit_tokens
    assert drafted > 3000
    assert preempted > 20
    assert hit > 500


def spoiling(logits, chains):
    """The toy's sampler, except that a draft engine's guess for every seventh position is wrong."""
    sampled = sample_chains(logits, chains)
    for chain, tokens in zip(chains, sampled, strict=True):
        if chain.pending and chain.position % 7 == 0:
            tokens[0] = SampledToken((tokens[0].token_id + 1) % VOCAB)
    return sampled


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_twin_is_right_again_after_each_rejected_guess(temperature):
    """Wrong guesses leave wrong rows in the draft's cache; they must be overwritten, not believed."""
    loop = toy_loop(draft=ToyEngine(64), sample=spoiling)
    params = SamplingParams(max_tokens=120, temperature=temperature, seed=5, ignore_eos=True)
    loop.submit([3, 1, 4, 1, 5], params, DRAFT)
    known = 5
    rejections = 0
    while loop.has_work:
        before = loop.counters.accepted_tokens
        (emission,) = loop.step()
        depth_of_wrong_guess = next((j for j in range(1, 4) if (known + j) % 7 == 0), 4)
        if known + 5 <= 125:
            assert loop.counters.accepted_tokens - before == depth_of_wrong_guess
            rejections += depth_of_wrong_guess < 4
        known += len(emission.tokens)
    assert rejections > 10


def test_draft_catches_up_within_its_budget_of_rows():
    draft = ToyEngine(64)
    loop = toy_loop(draft=draft, max_num_batched_tokens=8, max_num_seqs=2)
    request = loop.submit(list(range(1, 31)), SamplingParams(max_tokens=20, ignore_eos=True), DRAFT)
    rows = []
    while loop.has_work:
        before = draft.num_rows, draft.num_runs
        loop.step()
        rows.append((draft.num_rows - before[0], draft.num_runs - before[1]))
    assert max(rows[i][0] for i in range(len(rows)) if rows[i][1] == 1) <= 8
    assert loop.counters.accepted_tokens == loop.counters.draft_tokens > 0
    assert len(request.output_ids) == 20


def test_first_run_brings_the_missing_rows_and_each_further_run_one_row():
    draft = ToyEngine(64)
    loop = toy_loop(draft=draft)
    loop.submit([1, 2, 3, 4, 5, 6], SamplingParams(max_tokens=30, ignore_eos=True), DRAFT)
    loop.step()
    assert (draft.num_runs, draft.num_rows) == (4, 6 + 3)
    loop.step()
    assert (draft.num_runs, draft.num_rows) == (8, 9 + 2 + 3), (
        "the last accepted guess and the bonus token were missing"
    )


def test_prefix_hit_serves_the_draft_too():
    draft = ToyEngine(64)
    loop = toy_loop(draft=draft)
    prompt = list(range(1, 20))
    loop.submit(prompt, SamplingParams(max_tokens=8, ignore_eos=True), DRAFT)
    run_to_end(loop)
    before = draft.num_rows
    loop.submit(prompt, SamplingParams(max_tokens=8, ignore_eos=True), DRAFT)
    loop.step()
    assert draft.num_rows - before == len(prompt) % PAGE_SIZE + 3


def test_prefix_of_a_request_without_draft_does_not_fool_the_draft():
    loop = toy_loop(draft=ToyEngine(64))
    prompt = list(range(1, 20))
    loop.submit(prompt, SamplingParams(max_tokens=8, ignore_eos=True))
    run_to_end(loop)
    loop.submit(prompt, SamplingParams(max_tokens=30, ignore_eos=True), DRAFT)
    run_to_end(loop)
    assert loop.counters.prefix_hit_tokens == 16
    assert loop.counters.accepted_tokens == loop.counters.draft_tokens > 0


def test_guess_outside_the_targets_vocabulary_ends_the_guessing():
    target_vocab = 20

    class Narrow(ToyEngine):
        def __post_init__(self):
            super().__post_init__()
            self.facts = replace(self.facts, vocab_size=target_vocab)

        def run(self, batch):
            assert batch.input_ids.max() < target_vocab, "an id without an embedding"
            return super().run(batch)[:, :target_vocab]

    loop = Loop(Narrow(64), sample_chains, draft=ToyEngine(64))
    request = loop.submit([1, 2, 3], SamplingParams(max_tokens=60, ignore_eos=True, temperature=1.0, seed=1), DRAFT)
    run_to_end(loop)
    assert len(request.output_ids) == 60
    assert loop.counters.draft_tokens < 4 * loop.counters.drafts


def test_draft_with_shorter_sequences_stops_guessing_in_time():
    draft = ToyEngine(64)
    draft.facts = replace(draft.facts, max_positions=20)
    loop = toy_loop(draft=draft)
    request = loop.submit([1, 2, 3], SamplingParams(max_tokens=60, ignore_eos=True), DRAFT)
    run_to_end(loop)
    assert len(request.output_ids) == 60
    assert loop.counters.steps > 40
