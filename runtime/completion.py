"""One prompt of a `generate` call: what is asked, what has come out so far, and the finished completion.

In: emissions, in order. Out: a frozen `Completion`. Reading the finished `Request` instead lost: it knows neither the
text nor when each token came out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from .chain import SampledToken
from .emit import Emission
from .request import FinishReason, Request, RequestOptions
from .sampling_params import SamplingParams

__all__ = ["Completion", "Job"]


@dataclass(frozen=True)
class Completion:
    """One finished request. `emitted_s[i]` is when token i came out, in seconds since the request was handed in."""

    prompt_ids: tuple[int, ...]
    tokens: tuple[SampledToken, ...]
    text: str
    finish_reason: FinishReason
    emitted_s: tuple[float, ...]
    num_preemptions: int

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Output token ids, a stop token included."""
        return tuple(token.token_id for token in self.tokens)


@dataclass(eq=False)
class Job:
    """One prompt of a `generate` call and what has come out of it so far."""

    prompt_ids: Sequence[int]
    params: SamplingParams
    options: RequestOptions
    request: Request | None = None
    tokens: list[SampledToken] = field(default_factory=list)
    text: str = ""
    emitted_s: list[float] = field(default_factory=list)

    def started(self) -> Request:
        """Its request, which exists once it was handed in."""
        assert self.request is not None
        return self.request

    def take(self, emission: Emission) -> bool:
        """Add an emission; True when it was the last."""
        elapsed_s = time.monotonic() - emission.request.arrival_s
        self.tokens += emission.tokens
        self.text += emission.text
        self.emitted_s += [elapsed_s] * len(emission.tokens)
        return emission.finish_reason is not None

    def completion(self) -> Completion:
        """The finished job."""
        request = self.started()
        assert request.finish_reason is not None
        return Completion(
            prompt_ids=tuple(self.prompt_ids),
            tokens=tuple(self.tokens),
            text=self.text,
            finish_reason=request.finish_reason,
            emitted_s=tuple(self.emitted_s),
            num_preemptions=request.num_preemptions,
        )
