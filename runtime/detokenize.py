"""Tokens to text, as they come, without ever splitting a character.

Token ids flow in one at a time; text that is certain flows out. A token may hold half a character: as long as the text
of the tokens since the last clean boundary ends in the replacement character, nothing is let out. Only those few tokens
are decoded again, together with the ones before them (decoders treat a first token specially), so the cost per token
does not grow with the text. Decoding everything anew each time lost for that reason.
"""

from typing import Protocol

from .stop import StopScanner

__all__ = ["Decoder", "Detokenizer", "StreamWriter"]

REPLACEMENT = "\ufffd"
LONGEST_CHARACTER = 4  # bytes of UTF-8, and so tokens of one byte each
LONGEST_PENDING = 16  # tokens; a run of emoji parts is shorter


class Decoder(Protocol):
    """What is needed of a tokenizer: ids to text, specials left out."""

    def decode(self, ids: list[int]) -> str:
        """The text of `ids`; bytes that are no whole character become U+FFFD."""


class Detokenizer:
    """One text in the making. `ids[:clean]` has been let out and gives context; `ids[clean:]` is pending."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._ids: list[int] = []
        self._clean = 0
        self._let_out = ""  # the text of ids[:clean], kept instead of decoded again

    def push(self, token_id: int) -> str:
        """Take one token, return the text that is now certain."""
        self._ids.append(token_id)
        text = self._decoder.decode(self._ids)
        if not text.endswith(REPLACEMENT):
            return self._let_go(len(self._ids), text)
        if len(self._ids) - self._clean > LONGEST_PENDING:
            return self._let_go_of_rubbish(text)
        return ""

    def flush(self) -> str:
        """The rest at the end, half characters as U+FFFD."""
        return self._let_go(len(self._ids), self._decoder.decode(self._ids)) if self._ids else ""

    def _let_go(self, end: int, text: str) -> str:
        """Let out `text`, which is that of ids[:end], as far as it is new; what it was made of becomes the context."""
        new = text[len(self._let_out) :]
        if new:
            context, rest = self._ids[self._clean : end], self._ids[end:]
            self._ids, self._clean = context + rest, len(context)
            self._let_out = self._decoder.decode(context)
        else:
            del self._ids[self._clean : end]  # tokens without text, such as specials: nothing to remember
        return new

    def _let_go_of_rubbish(self, text: str) -> str:
        """Bytes that never become a character must not pile up: cut where the two parts decode as the whole does."""
        for end in range(len(self._ids) - 1, len(self._ids) - LONGEST_CHARACTER, -1):
            front = self._decoder.decode(self._ids[:end])
            if front + self._decoder.decode(self._ids[end:]) == text:
                return self._let_go(end, front)
        return ""


class StreamWriter:
    """See runtime/request.py: `TextWriter`; detokenisation, then stop strings."""

    def __init__(self, decoder: Decoder, stops: tuple[str, ...]) -> None:
        self._detokenizer = Detokenizer(decoder)
        self._scanner = StopScanner(stops)

    @property
    def stopped(self) -> bool:
        """Whether a stop string is complete."""
        return self._scanner.stopped

    def push(self, token_id: int) -> str:
        """Take one token, return the text that is certain."""
        return self._scanner.push(self._detokenizer.push(token_id))

    def flush(self) -> str:
        """The rest of the text; nothing after a stop string."""
        if self._scanner.stopped:
            return ""
        return self._scanner.push(self._detokenizer.flush()) + self._scanner.flush()
