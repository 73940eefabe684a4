"""The way into the native sampler: one call a step for all chains.

Logits and chains flow in, tokens flow out; what the choice is, is said in plugins/sampler/sampler.cpp and again, in
NumPy, in runtime/sample_oracle.py. Sampling in NumPy lost: noise for one row of 49k ids takes it 1 ms.
"""

import ctypes
from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..plugins.native.library import open_library
from .chain import Chain, SampledToken, TokenLogprobs
from .errors import PacelineError

__all__ = ["NotANumberError", "Sampler", "logprobs_of"]

Floats = npt.NDArray[np.float32]


class NotANumberError(PacelineError):
    """A row of logits holds NaN: the model or a kernel is broken, and any token would be a lie."""


class NativeChain(ctypes.Structure):
    """One request's rows, field by field as `struct Chain` in sampler.cpp."""

    _fields_ = (
        ("row", ctypes.c_int64),
        ("position", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("draft", ctypes.c_void_p),
        ("pending", ctypes.c_void_p),
        ("seen_ids", ctypes.c_void_p),
        ("seen_in_output", ctypes.c_void_p),
        ("bias_ids", ctypes.c_void_p),
        ("bias_values", ctypes.c_void_p),
        ("tokens", ctypes.c_void_p),
        ("num_draft", ctypes.c_int32),
        ("num_pending", ctypes.c_int32),
        ("num_seen", ctypes.c_int32),
        ("num_bias", ctypes.c_int32),
        ("num_tokens", ctypes.c_int32),
        ("top_k", ctypes.c_int32),
        ("temperature", ctypes.c_float),
        ("top_p", ctypes.c_float),
        ("min_p", ctypes.c_float),
        ("repetition_penalty", ctypes.c_float),
        ("presence_penalty", ctypes.c_float),
        ("frequency_penalty", ctypes.c_float),
    )


class Sampler:
    """Callable as runtime/chain.py's `SampleChains`."""

    def __init__(self) -> None:
        self._sample = open_library().paceline_sample
        self._sample.restype = ctypes.c_int64
        self._sample.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)

    def __call__(self, logits: Floats, chains: Sequence[Chain]) -> list[list[SampledToken]]:
        """Tokens of each chain up to the first that differs from its draft, inclusive.

        Raises: NotANumberError naming the row.
        """
        if not chains:
            return []
        natives = (NativeChain * len(chains))()
        kept: list[object] = []  # buffers that the native call reads
        outputs = [_fill(native, chain, kept) for native, chain in zip(natives, chains, strict=True)]
        bad_row = self._sample(logits.ctypes.data, logits.shape[1], ctypes.addressof(natives), len(chains))
        if bad_row >= 0:
            raise NotANumberError(
                f"NaN in row {bad_row} of the logits",
                needed="numbers",
                do="run 'paceline inspect' on the bundle, and build it again with weights: fp32 to see who is at fault",
            )
        return [
            _tokens(logits, chain, output[: native.num_tokens])
            for native, chain, output in zip(natives, chains, outputs, strict=True)
        ]


def _fill(native: NativeChain, chain: Chain, kept: list[object]) -> "array[int]":
    """Lay one chain out; returns the array that its tokens will be written to."""
    params, output = chain.state.params, array("q", bytes(8 * (len(chain.draft) + 1)))
    kept.append(output)
    native.row, native.position, native.seed = chain.row, chain.position, chain.state.seed
    native.tokens = output.buffer_info()[0]
    native.temperature, native.top_k, native.top_p, native.min_p = (
        params.temperature,
        params.top_k,
        params.top_p,
        params.min_p,
    )
    native.repetition_penalty = params.repetition_penalty
    native.presence_penalty = params.presence_penalty
    native.frequency_penalty = params.frequency_penalty
    if chain.draft:
        native.draft, native.num_draft = _lend(array("q", chain.draft), kept)
    if chain.pending:
        native.pending, native.num_pending = _lend(array("q", chain.pending), kept)
    if chain.state.counts is not None:
        native.seen_ids, native.num_seen = chain.state.counts.ids.buffer_info()
        native.seen_in_output = chain.state.counts.in_output.buffer_info()[0]
    if params.logit_bias:
        native.bias_ids, native.num_bias = _lend(array("i", params.logit_bias.keys()), kept)
        native.bias_values, _ = _lend(array("f", params.logit_bias.values()), kept)
    return output


def _lend(values: "array[int] | array[float]", kept: list[object]) -> tuple[int, int]:
    kept.append(values)
    return values.buffer_info()


def _tokens(logits: Floats, chain: Chain, token_ids: Sequence[int]) -> list[SampledToken]:
    count = chain.state.params.logprobs
    if count is None:
        return [SampledToken(token_id) for token_id in token_ids]
    return [
        SampledToken(token_id, logprobs_of(logits[chain.row + depth], token_id, count))
        for depth, token_id in enumerate(token_ids)
    ]


def logprobs_of(row: Floats, token_id: int, count: int) -> TokenLogprobs:
    """Log-probabilities under the model itself: log-softmax of the raw logits, before any sampling option."""
    values = row.astype(np.float64)
    largest = values.max()
    total = largest + np.log(np.exp(values - largest).sum())
    best = np.argpartition(-values, min(count, len(values) - 1))[:count] if count else np.array([], np.int64)
    ranked = sorted(best.tolist(), key=lambda token: (-values[token], token))
    return TokenLogprobs(float(values[token_id] - total), tuple((i, float(values[i] - total)) for i in ranked))
