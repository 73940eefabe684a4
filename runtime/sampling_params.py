"""What a caller may ask of one request's sampling, checked on arrival: every option is honoured or refused.

The order in which the options act on a row of logits is fixed (runtime/sample.py): repetition, presence and frequency
penalties, bias, temperature, top-k, top-p, min-p, and then the noise that makes the choice.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from .errors import RequestError

__all__ = ["SamplingParams"]

MAX_LOGPROBS = 20  # as OpenAI's API


@dataclass(frozen=True)
class SamplingParams:
    """How to choose a request's tokens and when to stop.

    `temperature` 0 is greedy. `top_k` 0 and `top_p` 1 and `min_p` 0 are off. `seed` None draws one on arrival.
    `stop` holds strings, `stop_token_ids` ids; the model's own end tokens stop too unless `ignore_eos`.
    `logprobs` None is off; N asks for the chosen token's and the N best tokens' log-probabilities.
    """

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None

    def check(self, vocab_size: int) -> None:
        """Raise `RequestError` naming the first option that can never be honoured."""
        for name, ok, needed in self._rules(vocab_size):
            if not ok:
                raise RequestError(
                    f"{name} = {getattr(self, name)!r}", needed=needed, do=f"change {name} or leave it out"
                )

    def _rules(self, vocab_size: int) -> list[tuple[str, bool, str]]:
        return [
            ("max_tokens", self.max_tokens >= 1, "at least 1"),
            ("temperature", 0.0 <= self.temperature <= 100.0, "a number from 0 to 100"),
            ("top_k", self.top_k >= 0, "0 (off) or more"),
            ("top_p", 0.0 < self.top_p <= 1.0, "more than 0, at most 1"),
            ("min_p", 0.0 <= self.min_p <= 1.0, "from 0 to 1"),
            ("repetition_penalty", 0.0 < self.repetition_penalty < math.inf, "more than 0"),
            ("presence_penalty", abs(self.presence_penalty) <= 2.0, "from -2 to 2"),
            ("frequency_penalty", abs(self.frequency_penalty) <= 2.0, "from -2 to 2"),
            (
                "logit_bias",
                all(0 <= i < vocab_size and abs(b) <= 100.0 for i, b in self.logit_bias.items()),
                f"token ids below {vocab_size} and values from -100 to 100",
            ),
            ("seed", self.seed is None or 0 <= self.seed < 2**64, "an unsigned 64-bit number"),
            ("stop", all(self.stop), "strings that are not empty"),
            ("stop_token_ids", all(0 <= i < vocab_size for i in self.stop_token_ids), f"ids below {vocab_size}"),
            ("logprobs", self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS, f"0 to {MAX_LOGPROBS}"),
        ]
