"""The native sampler against its oracle, its distribution against exact probabilities, and what may not matter."""

from array import array
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.runtime.chain import Chain, SamplerState
from paceline.runtime.sample import NotANumberError, Sampler
from paceline.runtime.sample_oracle import gumbel_noise, sample_chains
from paceline.runtime.sampling_params import SamplingParams

SAMPLE = Sampler()


def state_of(
    params: SamplingParams, seed: int = 0, prompt: tuple[int, ...] = (1, 2), output: tuple[int, ...] = ()
) -> SamplerState:
    state = SamplerState(params, seed, array("q", prompt), len(prompt))
    for token in output:
        state.append(token)
    return state


def choose(row: np.ndarray, params: SamplingParams, seed: int = 0, position: int = 2) -> int:
    return SAMPLE(row[None].astype(np.float32), [Chain(0, (), state_of(params, seed), position)])[0][0].token_id


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.05, 0.3, 0.7, 1.0, 3.0]),
    top_k=st.sampled_from([0, 0, 1, 2, 7, 1000]),
    top_p=st.sampled_from([1.0, 1.0, 0.95, 0.5, 0.01]),
    min_p=st.sampled_from([0.0, 0.0, 0.05, 0.5, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.8]),
    presence_penalty=st.sampled_from([0.0, 0.5, -0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.7]),
    logit_bias=st.sampled_from([{}, {0: 5.0, 3: -100.0}, {2: 100.0}]),
)


@given(
    params=PARAMS,
    vocab=st.sampled_from([5, 16, 63, 64, 65, 129, 1000]),
    spread=st.sampled_from([0.0, 0.01, 1.0, 8.0, 200.0]),
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(4, 2**33),
)
@settings(max_examples=400, deadline=None, derandomize=True)
def test_native_and_oracle_choose_the_same_tokens(
    params: SamplingParams, vocab: int, spread: float, seed: int, position: int
) -> None:
    rng = np.random.default_rng(seed % 2**32)
    logits = (rng.standard_normal((5, vocab)) * spread).astype(np.float32)
    logits[1] = np.round(logits[1])  # ties
    logits[2, rng.integers(0, vocab, vocab // 2)] = -np.inf
    state = state_of(params, seed, prompt=(0, 1, 1), output=(2, 4, 4))
    first = sample_chains(logits, [Chain(0, (), state, position)])[0][0].token_id
    chains = [
        Chain(0, (first, int(rng.integers(vocab))), state, position),  # one right guess, one that is seldom right
        Chain(3, (int(rng.integers(vocab)),), state, position + 1, pending=(3,)),
    ]
    assert SAMPLE(logits, chains) == sample_chains(logits, chains)


def test_a_whole_vocabulary_agrees_too() -> None:
    rng = np.random.default_rng(0)
    logits = (rng.standard_normal((6, 49_152)) * 3).astype(np.float32)
    for params in (
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.7, top_p=0.9),
        SamplingParams(temperature=1.0, top_k=40, min_p=0.02),
        SamplingParams(temperature=0.0),
    ):
        chains = [Chain(row, (), state_of(params, seed=row), 2) for row in range(len(logits))]
        assert SAMPLE(logits, chains) == sample_chains(logits, chains)


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        (SamplingParams(temperature=1.0), range(8)),
        (SamplingParams(temperature=1.7), range(8)),
        (SamplingParams(temperature=1.0, top_k=3), (0, 1, 2)),
        (SamplingParams(temperature=1.0, top_p=0.7), (0, 1)),
        (SamplingParams(temperature=1.0, min_p=0.2), (0, 1, 2)),
    ],
)
def test_the_distribution_is_the_softmax_of_what_is_kept(params: SamplingParams, kept) -> None:
    """Chi-square with up to 7 degrees of freedom over 20,000 draws, seeds fixed; 30 comes up once in 10,000."""
    probabilities = np.array([0.4, 0.3, 0.1, 0.07, 0.05, 0.04, 0.03, 0.01])
    row = np.log(probabilities).astype(np.float32)
    count = 20_000
    chains = [Chain(0, (), state_of(params, seed=seed), 2) for seed in range(count)]
    drawn = np.bincount([tokens[0].token_id for tokens in SAMPLE(row[None], chains)], minlength=8)
    wanted = np.zeros(8)
    wanted[list(kept)] = probabilities[list(kept)] ** (1 / params.temperature)
    wanted *= count / wanted.sum()
    assert drawn[wanted == 0].sum() == 0
    inside = wanted > 0
    assert (((drawn - wanted) ** 2)[inside] / wanted[inside]).sum() < 30


def test_noise_is_keyed_by_seed_position_and_token_alone() -> None:
    params, row = SamplingParams(temperature=1.0), np.zeros(500, np.float32)
    tokens = {(seed, position): choose(row, params, seed, position) for seed in range(20) for position in range(2, 22)}
    assert len(set(tokens.values())) > 200, "seeds or positions share noise"
    assert all(choose(row, params, *key) == token for key, token in tokens.items())
    assert all(token == int(np.argmax(gumbel_noise(*key, 500))) for key, token in tokens.items())


def test_noise_has_the_moments_of_a_gumbel_distribution() -> None:
    """Mean 0.5772 and variance pi^2 / 6; one million draws, bounds of six standard errors."""
    noise = np.concatenate([gumbel_noise(7, position, 10_000) for position in range(100)])
    assert abs(noise.mean() - 0.57722) < 6 * 1.2825 / 1000
    assert abs(noise.var() - np.pi**2 / 6) < 0.02
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.006


def test_ties_go_to_the_lowest_id() -> None:
    row = np.array([1, 5, 3, 5, 5], np.float32)
    assert choose(row, SamplingParams()) == 1
    assert choose(row, SamplingParams(temperature=1.0, top_k=1)) == 1


def test_a_chain_ends_at_the_first_token_that_differs() -> None:
    logits = np.eye(6, dtype=np.float32) * 9
    state = state_of(SamplingParams())
    for draft, expected in (((0, 1, 2), [0, 1, 2, 3]), ((0, 5, 2), [0, 1]), ((4,), [0]), ((), [0])):
        assert [token.token_id for token in SAMPLE(logits, [Chain(0, draft, state, 2)])[0]] == expected


def test_a_row_with_nan_is_refused_by_number() -> None:
    logits = np.zeros((3, 70), np.float32)
    logits[1, 66] = np.nan
    chains = [Chain(row, (), state_of(SamplingParams(temperature=1.0)), 2) for row in range(3)]
    with pytest.raises(NotANumberError, match="row 1"):
        SAMPLE(logits, chains)
    assert SAMPLE(logits, []) == []


def test_logprobs_are_the_model_s_own() -> None:
    row = np.array([2.0, 1.0, 0.0, -1.0], np.float32)
    params = SamplingParams(temperature=0.0, logprobs=2, logit_bias={3: 50.0})
    token = SAMPLE(row[None], [Chain(0, (), state_of(params), 2)])[0][0]
    exact = row - np.log(np.exp(row.astype(np.float64)).sum())
    assert token.token_id == 3  # the bias chose it, the log-probability does not know of the bias
    assert token.logprobs is not None
    assert token.logprobs.chosen == pytest.approx(exact[3])
    assert token.logprobs.top == (pytest.approx((0, exact[0])), pytest.approx((1, exact[1])))
    none = SAMPLE(row[None], [Chain(0, (), state_of(replace(params, logprobs=None)), 2)])[0][0]
    assert none.logprobs is None
