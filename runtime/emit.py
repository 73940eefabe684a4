"""The last stage: sampled tokens become a request's output, its text and, where it ends, its reason.

In: the tokens that one chain yielded. Out: an `Emission`, and the request's history grown. Tokens behind a stop are
dropped here and nowhere else. A stop token ends the request and stays in its token ids, but is no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .chain import SampledToken
from .request import FinishReason, Request

__all__ = ["Emission", "end_request", "take_tokens"]


@dataclass(frozen=True, slots=True)
class Emission:
    """What one step added to one request; the last one of a request carries its `finish_reason`."""

    request: Request
    tokens: tuple[SampledToken, ...]
    text: str
    finish_reason: FinishReason | None


def take_tokens(request: Request, sampled: Sequence[SampledToken]) -> Emission:
    """Append tokens to the request until it ends or they do."""
    text = ""
    for count, token in enumerate(sampled, start=1):
        request.state.append(token.token_id)
        text += _text_of(request, token.token_id)
        reason = _end_reason(request, token.token_id)
        if reason is not None:
            return end_request(request, reason, tuple(sampled[:count]), text)
    return Emission(request, tuple(sampled), text, None)


def end_request(
    request: Request, reason: FinishReason, tokens: tuple[SampledToken, ...] = (), text: str = ""
) -> Emission:
    """The last emission of a request, with the text that was still held back."""
    request.finish_reason = reason
    rest = request.writer.flush() if request.writer is not None else ""
    return Emission(request, tokens, text + rest, reason)


def _text_of(request: Request, token_id: int) -> str:
    if request.writer is None or token_id in request.stop_ids:
        return ""
    return request.writer.push(token_id)


def _end_reason(request: Request, token_id: int) -> FinishReason | None:
    if token_id in request.stop_ids or (request.writer is not None and request.writer.stopped):
        return FinishReason.STOP
    return FinishReason.LENGTH if request.num_left == 0 else None
