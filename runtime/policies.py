"""The numbers that bound the loop, and what can never be served within them.

A request that cannot fit even when alone is refused on arrival with what was found and needed; letting it wait in the
queue until a deadline lost, because nobody learns from a timeout.
"""

from dataclasses import dataclass

from .errors import PacelineError, RequestError
from .pages import num_pages_for
from .sampling_params import SamplingParams

__all__ = ["Limits", "check_fits"]


@dataclass(frozen=True)
class Limits:
    """How much one step and one queue may hold; all counts are at least 1.

    `max_num_seqs` requests run at once, `max_num_batched_tokens` rows in a step (guesses included), `max_chunk_tokens`
    known tokens of one request in a step, `max_queue` requests waiting, `max_draft_tokens` guesses for one request.
    """

    max_num_seqs: int = 8
    max_num_batched_tokens: int = 512
    max_chunk_tokens: int = 512
    max_queue: int = 1024
    max_draft_tokens: int = 8

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise PacelineError(f"{name} = {value}", needed="at least 1", do=f"raise {name} or leave it out")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise PacelineError(
                f"max_num_batched_tokens = {self.max_num_batched_tokens}",
                needed=f"one row for each of max_num_seqs = {self.max_num_seqs} requests",
                do="raise max_num_batched_tokens or lower max_num_seqs",
            )


def check_fits(num_prompt: int, params: SamplingParams, *, max_positions: int, page_size: int, num_pages: int) -> None:
    """Raise `RequestError` when a request could not run even with the engine to itself."""
    if num_prompt == 0:
        raise RequestError("an empty prompt", needed="at least one token to start from", do="pass some text")
    longest = num_prompt + params.max_tokens
    if longest > max_positions:
        raise RequestError(
            f"{num_prompt} prompt tokens + max_tokens {params.max_tokens} = {longest}",
            needed=f"at most {max_positions} tokens, the model's longest sequence",
            do="shorten the prompt or lower max_tokens",
        )
    if num_pages_for(longest, page_size) > num_pages:
        raise RequestError(
            f"{longest} tokens need {num_pages_for(longest, page_size)} pages",
            needed=f"at most {num_pages} pages of {page_size} tokens, the whole pool",
            do="lower max_tokens, shorten the prompt or open the bundle with more pages",
        )
