"""Drafting by looking up the last few tokens in prompt and output: free guesses wherever text repeats itself.

In: one request's known tokens. Out: the tokens that followed the most recent earlier occurrence of its longest known
suffix. The index grows by one dictionary entry per n-gram length and token, so a look-up costs the same at any context
length; searching the history anew each step (`bytes.rfind`) lost, since it grows with it.
"""

from __future__ import annotations

from array import array
from itertools import cycle, islice

__all__ = ["LONGEST", "SHORTEST", "NgramIndex"]

LONGEST, SHORTEST = 4, 2  # tokens of the suffix; a single token matches nearly everything and is seldom right
TOKEN_BITS = 20  # ids above 2^20 may collide: that costs a wrong guess, never a wrong token


class NgramIndex:
    """Most recent occurrence of every n-gram of one request; reads the request's own token array, copies nothing.

    Source: prompt lookup decoding, Saxena 2023 (`apoorvumang/prompt-lookup-decoding`).
    """

    __slots__ = ("_key", "_masks", "_num_indexed", "_tables", "_token_ids")

    def __init__(self, token_ids: array[int], longest: int = LONGEST, shortest: int = SHORTEST) -> None:
        self._token_ids = token_ids
        self._masks = tuple((1 << (TOKEN_BITS * n)) - 1 for n in range(longest, shortest - 1, -1))
        self._tables: tuple[dict[int, int], ...] = tuple({} for _ in self._masks)
        self._key = 0  # the last `longest` indexed tokens, packed
        self._num_indexed = 0
        self._index_new_tokens()

    def propose(self, count: int) -> tuple[int, ...]:
        """Up to `count` guesses for the tokens after the known ones; empty when no suffix occurred before.

        Where the match runs into the end of the text, the text repeats with that period and the guess goes on with it.
        """
        self._index_new_tokens()
        key = self._key << TOKEN_BITS | self._token_ids[-1]
        for mask, follower in zip(self._masks, self._tables, strict=True):
            start = follower.get(key & mask)
            if start is not None:
                tail = self._token_ids[start : start + count]
                return tuple(islice(cycle(tail), count))
        return ()

    def _index_new_tokens(self) -> None:
        """Enter all n-grams that end before the last token: the suffix itself must not be its own match."""
        key, widest = self._key, self._masks[0]
        for end in range(self._num_indexed, len(self._token_ids) - 1):
            key = (key << TOKEN_BITS | self._token_ids[end]) & widest
            for mask, follower in zip(self._masks, self._tables, strict=True):
                follower[key & mask] = end + 1
        self._key = key
        self._num_indexed = max(self._num_indexed, len(self._token_ids) - 1)
