"""The sampler once more, in plain NumPy: slow, short, and what the native one is compared with.

One processed choice is `argmax(logits' + gumbel(seed, position))` (Gumbel-max; coupled between draft and target as in
Daliri, Musco, Suresh 2024, "Coupling without communication and drafter-invariant speculative decoding").
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .chain import Chain, SampledToken
from .sampling_params import SamplingParams

__all__ = ["gumbel_noise", "sample_chains", "sample_row"]

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

LOW = np.uint64(0xFFFFFFFF)
MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def sample_chains(logits: Floats, chains: Sequence[Chain]) -> list[list[SampledToken]]:
    """As runtime/chain.py's `SampleChains`, without logprobs."""
    return [_sample_chain(logits, chain) for chain in chains]


def sample_row(
    row: Floats, params: SamplingParams, prompt: Sequence[int], output: Sequence[int], key: tuple[int, int]
) -> int:
    """The token for one row; `key` is (seed, position)."""
    logits = _processed(row, params, prompt, output)
    if params.temperature == 0:
        return int(np.argmax(logits))
    scaled = logits / np.float32(params.temperature)
    scores = scaled.astype(np.float64) + gumbel_noise(*key, len(row))
    scores[~_kept(scaled, params)] = -np.inf
    return int(np.argmax(scores))


def gumbel_noise(seed: int, position: int, count: int) -> Doubles:
    """Gumbel noise for token ids 0 .. count - 1: Philox4x32-10 words (Salmon et al. 2011) through -log(-log(u)).

    Token t gets word (t // 16) % 4 of counter (t // 64) * 16 + t % 16.
    """
    token = np.arange(count, dtype=np.uint64)
    counter = token // np.uint64(64) * np.uint64(16) + token % np.uint64(16)
    words = _philox(counter, position, seed)
    chosen = np.choose((token // np.uint64(16) % np.uint64(4)).astype(np.int64), words)
    return -np.log(-np.log((chosen.astype(np.float64) + 0.5) * 2.0**-32))


def _philox(counter: Words, position: int, seed: int) -> list[Words]:
    x = [counter & LOW, np.full_like(counter, position & 0xFFFFFFFF), np.full_like(counter, position >> 32)]
    x.append(np.zeros_like(counter))
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(ROUNDS):
        product = [MULTIPLIERS[0] * x[0], MULTIPLIERS[1] * x[2]]
        x = [
            product[1] >> np.uint64(32) ^ x[1] ^ np.uint64(key[0]),
            product[1] & LOW,
            product[0] >> np.uint64(32) ^ x[3] ^ np.uint64(key[1]),
            product[0] & LOW,
        ]
        key = [(k + w) & 0xFFFFFFFF for k, w in zip(key, WEYL, strict=True)]
    return x


def _sample_chain(logits: Floats, chain: Chain) -> list[SampledToken]:
    state, tokens = chain.state, list[SampledToken]()
    prompt, output = list(state.token_ids[: state.num_prompt]), list(state.token_ids[state.num_prompt :])
    for depth in range(len(chain.draft) + 1):
        history = [*output, *chain.pending, *chain.draft[:depth]]
        row, key = logits[chain.row + depth], (state.seed, chain.position + depth)
        tokens.append(SampledToken(sample_row(row, state.params, prompt, history, key)))
        if depth < len(chain.draft) and tokens[-1].token_id != chain.draft[depth]:
            break
    return tokens


def _processed(row: Floats, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]) -> Floats:
    """Penalties, then bias, in float32 as the native sampler does them."""
    logits = row.copy()
    in_output = Counter(output)
    for token in {*prompt, *output}:
        logit, penalty = logits[token], np.float32(params.repetition_penalty)
        logits[token] = logit / penalty if logit > 0 else logit * penalty
        logits[token] -= np.float32(params.frequency_penalty) * np.float32(in_output[token])
        if in_output[token]:
            logits[token] -= np.float32(params.presence_penalty)
    for token, bias in params.logit_bias.items():
        logits[token] += np.float32(bias)
    return logits


def _kept(scaled: Floats, params: SamplingParams) -> npt.NDArray[np.bool_]:
    """Which ids top-k, top-p and min-p leave; of equal logits the lower id is kept first."""
    order = np.lexsort((np.arange(len(scaled)), -scaled))
    if params.top_k:
        order = order[: params.top_k]
    if params.top_p < 1:
        weight = np.exp(scaled[order].astype(np.float64) - float(scaled[order[0]]))
        reached = np.cumsum(weight) >= float(np.float32(params.top_p)) * weight.sum()
        order = order[: int(np.argmax(reached)) + 1 if reached.any() else len(order)]
    if params.min_p > 0:
        order = order[scaled[order] >= scaled[order[0]] + np.log(np.float32(params.min_p))]
    kept = np.zeros(len(scaled), np.bool_)
    kept[order] = True
    return kept
