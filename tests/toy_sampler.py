"""A sampler in plain NumPy for driving the loop: the pipeline of runtime/sample.py, slow and short.

In: logits rows and chains. Out: tokens until the first that differs from the guess. The loop's tests use it instead of
the native routine so that they say nothing about sampling and run without a compiler.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from paceline.runtime.chain import Chain, SampledToken
from paceline.runtime.sampling_params import SamplingParams

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def sample_chains(logits: np.ndarray, chains: Sequence[Chain]) -> list[list[SampledToken]]:
    """As `SampleChains` in runtime/chain.py; never asks for log-probabilities."""
    return [_sample_chain(logits, chain) for chain in chains]


def _sample_chain(logits: np.ndarray, chain: Chain) -> list[SampledToken]:
    assert chain.position == len(chain.state.token_ids) + len(chain.pending)
    tokens: list[SampledToken] = []
    for depth in range(len(chain.draft) + 1):
        before = [*chain.state.token_ids, *chain.pending, *chain.draft[:depth]]
        token_id = choose(logits[chain.row + depth], chain, before, chain.position + depth)
        tokens.append(SampledToken(token_id))
        if depth < len(chain.draft) and token_id != chain.draft[depth]:
            break
    return tokens


def choose(row: np.ndarray, chain: Chain, before: list[int], position: int) -> int:
    """The token at `position`, a function of the row, the params, the seed, the position and the history alone."""
    params = chain.state.params
    scores = _penalised(row.astype(np.float64), params, before, chain.state.num_prompt)
    for token_id, bias in params.logit_bias.items():
        scores[token_id] += bias
    if params.temperature == 0.0:
        return int(scores.argmax())
    scores /= params.temperature
    scores[~_allowed(scores, params)] = -np.inf
    return int((scores + gumbel(chain.state.seed, position, len(row))).argmax())


def gumbel(seed: int, position: int, vocab: int) -> np.ndarray:
    """Noise keyed by (seed, position, token id)."""
    with np.errstate(over="ignore"):
        bits = (
            np.arange(vocab, dtype=np.uint64) * _GOLDEN + np.uint64(seed) + np.uint64(position) * np.uint64(0xABCDEF97)
        )
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53
    return -np.log(-np.log(uniform))


def _penalised(scores: np.ndarray, params: SamplingParams, before: list[int], num_prompt: int) -> np.ndarray:
    if params.repetition_penalty != 1.0:
        seen = np.array(sorted(set(before)))
        values = scores[seen]
        scores[seen] = np.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
    if params.presence_penalty or params.frequency_penalty:
        for token_id, count in Counter(before[num_prompt:]).items():
            scores[token_id] -= params.presence_penalty + count * params.frequency_penalty
    return scores


def _allowed(scores: np.ndarray, params: SamplingParams) -> np.ndarray:
    order = np.argsort(-scores, kind="stable")
    probabilities = np.exp(scores - scores.max())
    probabilities /= probabilities.sum()
    allowed = np.zeros(len(scores), bool)
    allowed[order[: params.top_k or len(order)]] = True
    ranked = probabilities[order]
    allowed[order[np.cumsum(ranked) - ranked >= params.top_p]] = False
    allowed &= probabilities >= params.min_p * probabilities.max()
    return allowed
