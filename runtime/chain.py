"""The nouns between the loop and the sampler: what is to be sampled, and what came out.

The loop hands over one `Chain` a request and step: a run of logits rows, the draft tokens that were guessed for them,
and the request's `SamplerState`. The sampler answers with tokens up to and including the first that differs from the
guess. A flat list of rows lost: row j+1 may only be looked at once row j has confirmed its draft token.

The choice at a position is a function of (logits row, params, seed, position, tokens before it) and of nothing else.
That is what makes batching and speculation invisible: no step counter, batch index or wall clock may enter here.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .sampling_params import SamplingParams

__all__ = ["Chain", "SampleChains", "SampledToken", "SamplerState", "TokenCounts", "TokenLogprobs"]


class TokenCounts:
    """How often each token stands in one request, in the sparse form that penalties need.

    `ids[i]` is a token seen in prompt or output, `in_output[i]` how often the output holds it (0: prompt only); both
    are `array('i')`, so `buffer_info()` hands them to native code without a copy. Costs O(1) a new token.
    """

    __slots__ = ("_index", "ids", "in_output")

    def __init__(self, prompt_ids: Sequence[int]) -> None:
        self.ids = array("i", dict.fromkeys(prompt_ids))
        self.in_output = array("i", bytes(4 * len(self.ids)))
        self._index = {token_id: i for i, token_id in enumerate(self.ids)}

    def add(self, token_id: int) -> None:
        """Count one more output token."""
        i = self._index.setdefault(token_id, len(self.ids))
        if i == len(self.ids):
            self.ids.append(token_id)
            self.in_output.append(0)
        self.in_output[i] += 1


@dataclass(slots=True, eq=False)
class SamplerState:
    """One request's side of every choice; lives as long as the request, grows by `append` alone.

    `token_ids` is prompt then output as `array('q')`: read it in place, a copy per step would cost O(length).
    `counts` is kept only where a penalty is on. `seed` is the resolved unsigned 64-bit seed.
    """

    params: SamplingParams
    seed: int
    token_ids: array[int]
    num_prompt: int
    counts: TokenCounts | None = field(init=False)

    def __post_init__(self) -> None:
        p = self.params
        penalised = p.repetition_penalty != 1.0 or p.presence_penalty != 0.0 or p.frequency_penalty != 0.0
        self.counts = TokenCounts(self.token_ids) if penalised else None

    @property
    def num_output(self) -> int:
        """Output tokens so far."""
        return len(self.token_ids) - self.num_prompt

    def append(self, token_id: int) -> None:
        """Take a token into the history; only tokens that the target chose get here, never a draft's."""
        self.token_ids.append(token_id)
        if self.counts is not None:
            self.counts.add(token_id)


@dataclass(frozen=True, slots=True)
class Chain:
    """Rows `row .. row + len(draft)` of the logits, all of one request.

    Row `row + j` predicts the token at `position + j`, given `state.token_ids`, then `pending`, then `draft[:j]`: all
    of these count for penalties. `pending` holds drafted tokens that no row of this chain checks (a draft engine
    sampling its own next token); for the target it is empty. `position == len(state.token_ids) + len(pending)` always.
    """

    row: int
    draft: tuple[int, ...]
    state: SamplerState
    position: int
    pending: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural-log probabilities at one position: the chosen token's, and the best `params.logprobs` as (id, value)."""

    chosen: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class SampledToken:
    """One token as the target chose it; `logprobs` is None unless the request asked."""

    token_id: int
    logprobs: TokenLogprobs | None = None


SampleChains = Callable[[npt.NDArray[np.float32], Sequence[Chain]], list[list[SampledToken]]]
"""`(logits [R, vocab] float32, chains) -> one list a chain`: tokens until the first that differs from `draft`,
inclusive, so 1 to len(draft) + 1 of them. Must not keep `logits`: the engine overwrites them in its next run."""
