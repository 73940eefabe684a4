"""The comparison of test_same_tokens.py must be able to fail: each bug planted here has to change somebody's tokens.

Every plant replaces one small seam of the real code by a plausible mistake and replays scenarios until one notices.
"Notices" means different tokens, or the loop tripping over its own counters; a plant that survives fails the test.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import toy_sampler
from toy_scenario import make_scenario, run_scenario

from paceline.runtime import batch, loop, prefix, request, schedule, verify
from paceline.runtime.chain import Chain, SampledToken

SEEDS = range(60)

Plant = Callable[[pytest.MonkeyPatch], Callable | None]
"""Breaks something; may return a sampler to be used instead of the toy's."""


def plant_nothing(patch: pytest.MonkeyPatch) -> None:
    """The control: without a bug nobody notices anything."""


def plant_bonus_counted_as_computed(patch: pytest.MonkeyPatch) -> None:
    """The bonus token becomes known and counts as computed at once, though its row was never run."""
    patch.setattr(loop, "num_valid", lambda known, accepted: known + accepted + 1)


def plant_bonus_cache_keeps_rejected_guess(patch: pytest.MonkeyPatch) -> None:
    """The bonus token's cell is taken as written: it keeps what the rejected guess left there."""
    original = batch.BatchBuilder._fill_rows

    def fill_rows(self, segment, row, end):
        original(self, segment, row, end)
        stale = getattr(self, "refused", {}).get(segment.request.request_id)
        if stale is not None and stale[0] == segment.stop - 1 and segment.start == stale[0]:
            self._input_ids[row] = stale[1]

    settle = loop.Loop._emit_tokens

    def emit_tokens(self, ride, guess, sampled):
        refused = self._builder.__dict__.setdefault("refused", {})
        refused.pop(ride.request.request_id, None)
        if len(sampled) <= len(guess):
            refused[ride.request.request_id] = (ride.stop + len(sampled) - 1, guess[len(sampled) - 1])
        return settle(self, ride, guess, sampled)

    patch.setattr(batch.BatchBuilder, "_fill_rows", fill_rows)
    patch.setattr(loop.Loop, "_emit_tokens", emit_tokens)


def plant_first_guess_never_verified(patch: pytest.MonkeyPatch) -> Callable:
    """draft[0] is taken on trust, checking starts with draft[1]."""

    def trusting(logits, chains):
        late = [Chain(c.row + 1, c.draft[1:], c.state, c.position + 1, c.draft[:1]) if c.draft else c for c in chains]
        sampled = toy_sampler.sample_chains(logits, late)
        return [[*map(SampledToken, c.draft[:1]), *tokens] for c, tokens in zip(chains, sampled, strict=True)]

    return trusting


def plant_positions_off_after_rejection(patch: pytest.MonkeyPatch) -> None:
    """The rows after a rejection are run one position too far."""
    rejected: set[int] = set()
    emit_tokens, positions_of = loop.Loop._emit_tokens, batch.BatchBuilder._positions_of

    def noting(self, ride, guess, sampled):
        (rejected.add if len(sampled) <= len(guess) else rejected.discard)(id(ride.request))
        return emit_tokens(self, ride, guess, sampled)

    def shifted(self, segment):
        return positions_of(self, segment) + (id(segment.request) in rejected)

    patch.setattr(loop.Loop, "_emit_tokens", noting)
    patch.setattr(batch.BatchBuilder, "_positions_of", shifted)


def plant_noise_keyed_by_step(patch: pytest.MonkeyPatch) -> Callable:
    """The noise depends on when a token is sampled instead of where it stands."""
    steps = iter(range(10**9))
    now = [0]
    gumbel = toy_sampler.gumbel
    patch.setattr(toy_sampler, "gumbel", lambda seed, position, vocab: gumbel(seed, now[0], vocab))

    def ticking(logits, chains):
        now[0] = next(steps)
        return toy_sampler.sample_chains(logits, chains)

    return ticking


def plant_page_shared_before_it_is_full(patch: pytest.MonkeyPatch) -> None:
    """A page is published as soon as its first token is computed."""
    patch.setattr(prefix, "num_full_pages", lambda num_tokens, page_size: -(-num_tokens // page_size))


def plant_digest_without_the_page_before(patch: pytest.MonkeyPatch) -> None:
    """Digests leave out the page before: equal pages in different contexts are taken for one."""
    original = prefix.blake2b
    patch.setattr(prefix, "blake2b", lambda data, digest_size: original(data[-4 * 8 :], digest_size=digest_size))


def plant_preempted_keeps_computed_count(patch: pytest.MonkeyPatch) -> None:
    """After preemption only what the prefix cache returns counts as computed; here the old count survives."""
    start_from = request.Request.start_from

    def forgetful(self, pages, num_draft_pages, page_size):
        before = self.num_computed
        start_from(self, pages, num_draft_pages, page_size)
        self.num_computed = max(self.num_computed, before)

    patch.setattr(request.Request, "start_over", lambda self: None)
    patch.setattr(request.Request, "start_from", forgetful)


def plant_page_given_back_too_early(patch: pytest.MonkeyPatch) -> None:
    """Trimming forgets the last known token's page where that token begins a page."""
    original = schedule.num_pages_for
    patch.setattr(schedule, "num_pages_for", lambda tokens, size: max(1, original(tokens - 1, size)))


def plant_logits_row_of_the_neighbour(patch: pytest.MonkeyPatch) -> None:
    """Rows are counted as if everybody had guessed nothing."""

    def chains_for(plan, drafts):
        chains = verify.chains_for(plan, drafts)
        return [replace(chain, row=min(chain.row, i)) for i, chain in enumerate(chains)]

    patch.setattr(loop, "chains_for", chains_for)


PLANTS = (
    plant_bonus_counted_as_computed,
    plant_bonus_cache_keeps_rejected_guess,
    plant_first_guess_never_verified,
    plant_positions_off_after_rejection,
    plant_noise_keyed_by_step,
    plant_page_shared_before_it_is_full,
    plant_digest_without_the_page_before,
    plant_preempted_keeps_computed_count,
    plant_page_given_back_too_early,
    plant_logits_row_of_the_neighbour,
)


def noticed_by(plant: Plant) -> str | None:
    """What the first scenario that notices the plant has to say; None when all are content."""
    for seed in SEEDS:
        with pytest.MonkeyPatch.context() as patch:
            sample = plant(patch) or toy_sampler.sample_chains
            try:
                wrong = run_scenario(make_scenario(seed), sample).wrong
            except AssertionError as error:
                wrong = [str(error)]
        if wrong:
            return f"scenario {seed}: {wrong[0]}"
    return None


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_bug_changes_tokens(plant):
    assert noticed_by(plant) is not None


def test_control_without_a_bug_is_content():
    assert noticed_by(plant_nothing) is None
