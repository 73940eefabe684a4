"""The draft engine's cache: a draft equal to the target is always right, whatever happened to its cache before.

Wrong draft caches cannot change tokens, so the same-tokens tests are blind to them. Here the draft is the target's
twin: any stale, missing or foreign row in its cache shows as a rejected guess.
"""

from dataclasses import replace
from random import Random

import pytest
from toy_engine import PAGE_SIZE, VOCAB, ToyEngine
from toy_requests import run_to_end, toy_loop
from toy_sampler import sample_chains
from toy_scenario import make_scenario, run_scenario

from paceline.runtime import loop as loop_module
from paceline.runtime.chain import SampledToken
from paceline.runtime.draft_engine import DraftEngine
from paceline.runtime.loop import Loop
from paceline.runtime.request import DraftMethod, Request, RequestOptions
from paceline.runtime.sampling_params import SamplingParams

LONG = SamplingParams(max_tokens=100, ignore_eos=True)
DRAFT = RequestOptions(drafting=DraftMethod.DRAFT, num_draft_tokens=4)


def twin_scenario(seed):
    """A random scenario in which everybody is drafted for by the target's twin."""
    scenario = make_scenario(seed)
    asked = tuple(
        replace(
            a,
            options=replace(a.options, drafting=DraftMethod.DRAFT, num_draft_tokens=max(1, a.options.num_draft_tokens)),
        )
        for a in scenario.asked
    )
    return replace(scenario, asked=asked, draft_agreement=1.0)


def twin_counters(seeds):
    return [run_scenario(twin_scenario(seed)).loop.counters for seed in seeds]


def spoiling(logits, chains):
    """The toy's sampler, except that a draft engine's guess for every seventh position is wrong."""
    sampled = sample_chains(logits, chains)
    for chain, tokens in zip(chains, sampled, strict=True):
        if chain.pending and chain.position % 7 == 0:
            tokens[0] = SampledToken((tokens[0].token_id + 1) % VOCAB)
    return sampled


def acceptances_of_spoiled_twin(temperature):
    """(guesses accepted, guesses before the first spoiled one) of each step of one long request."""
    loop = toy_loop(draft=ToyEngine(64), sample=spoiling)
    params = SamplingParams(max_tokens=120, temperature=temperature, seed=5, ignore_eos=True)
    request = loop.submit([3, 1, 4, 1, 5], params, DRAFT)
    steps = []
    while request.num_left > 5:
        known, before = request.num_known, loop.counters.accepted_tokens
        loop.step()
        spoiled = next((depth for depth in range(1, 4) if (known + depth) % 7 == 0), 4)
        steps.append((loop.counters.accepted_tokens - before, spoiled))
    return steps


def test_twin_is_always_right_through_chunks_preemption_and_prefix_hits():
    totals = twin_counters(range(60))
    for seed, counters in enumerate(totals):
        assert counters.accepted_tokens == counters.draft_tokens, f"scenario {seed}: a perfect draft was wrong"
    assert sum(c.draft_tokens for c in totals) > 3000
    assert sum(c.preemptions for c in totals) > 20
    assert sum(c.prefix_hit_tokens for c in totals) > 500


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_twin_is_right_again_after_each_rejected_guess(temperature):
    """Wrong guesses leave wrong rows in the draft's cache; they must be overwritten, not believed."""
    steps = acceptances_of_spoiled_twin(temperature)
    assert all(accepted == expected for accepted, expected in steps)
    assert sum(expected < 4 for _, expected in steps) > 10


def test_twin_is_right_after_a_while_in_which_others_guessed():
    """AUTO leaves the draft's cache behind whenever n-gram look-up answers; it must catch up with what was settled."""
    rng = Random(4)

    class FickleDrafter:
        def propose(self, rides):
            return [(rng.randrange(VOCAB),) if rng.random() < 0.6 else () for _ in rides]

    loop = toy_loop(draft=ToyEngine(64))
    loop._ngram = FickleDrafter()
    guessed = {}
    propose = loop._draft_engine.propose

    def noting(rides):
        guesses = propose(rides)
        guessed.update((ride.request, guess) for ride, guess in zip(rides, guesses, strict=True))
        return guesses

    loop._draft_engine.propose = noting
    for prompt in ([1, 2, 3], [4, 5, 6, 7, 8, 9, 10]):
        loop.submit(prompt, LONG, RequestOptions(drafting=DraftMethod.AUTO, num_draft_tokens=3))
    num_checked = 0
    while loop.has_work:
        guessed.clear()
        for emission in loop.step():
            guess = guessed.get(emission.request, ())
            assert guess == tuple(token.token_id for token in emission.tokens[: len(guess)])
            num_checked += len(guess)
    assert num_checked > 30


def notices_wrong_draft_cache():
    """Whether a twin is rejected somewhere, or the builder is asked for rows that a counter calls computed."""
    try:
        spoiled = any(accepted != expected for accepted, expected in acceptances_of_spoiled_twin(1.0))
        return spoiled or any(c.accepted_tokens != c.draft_tokens for c in twin_counters(range(60)))
    except AssertionError:
        return True


def plant_rejected_rows_are_believed(patch):
    """The draft's counter does not come down after a rejection."""

    def roll_back(request, valid):
        request.num_computed = min(valid, request.num_known)

    patch.setattr(loop_module, "roll_back", roll_back)


def plant_every_published_page_counts_for_the_draft(patch):
    """A prefix hit of the target is taken for one of the draft."""
    start_from = Request.start_from
    patch.setattr(Request, "start_from", lambda self, pages, _, size: start_from(self, pages, len(pages), size))


def plant_last_guess_counts_as_computed(patch):
    """The draft's counter includes guess K, which was never run."""
    advance = DraftEngine._advance

    def too_far(self, guessers, segments):
        more = advance(self, guessers, segments)
        for guesser in guessers:
            if guesser not in more and guesser.guess:
                guesser.ride.request.num_draft_computed += 1
        return more

    patch.setattr(DraftEngine, "_advance", too_far)


@pytest.mark.parametrize(
    "plant",
    [
        plant_rejected_rows_are_believed,
        plant_every_published_page_counts_for_the_draft,
        plant_last_guess_counts_as_computed,
    ],
    ids=lambda plant: plant.__name__,
)
def test_planted_bug_in_the_drafts_cache_is_noticed(plant, monkeypatch):
    plant(monkeypatch)
    assert notices_wrong_draft_cache()


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
