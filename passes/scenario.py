"""What a graph is asked when a pass is verified: prompts, and the ragged steps in which a paged graph gets them.

Token ids of real text flow in; a `Scenario` flows out: prefill whole and in chunks, decode, verification of drafts
whose wrong tokens are taken back, and all of that mixed in one step. A graph that is not paged yet takes each sequence
whole; its answers carry the same names, (sequence, position), and can be compared with the paged one's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

__all__ = ["Scenario", "Turn", "make_scenario"]

CHUNK = 64  # most rows of one step: their activations in all layers are in memory at once
LOGIT_ROWS_KEPT = 48  # of each sequence, its last: a vocabulary of 256k in float32 is 1 MB a row


@dataclass(frozen=True)
class Turn:
    """What one sequence gets in one step: its next `kept` tokens, and behind them `wrong` ones, later overwritten."""

    kept: int
    wrong: int = 0


@dataclass(frozen=True)
class Scenario:
    """`sequences` of ids; `steps` hold one turn a sequence; all tokens of all sequences are kept in some turn."""

    sequences: tuple[tuple[int, ...], ...]
    steps: tuple[tuple[Turn, ...], ...]
    vocab_size: int

    @property
    def num_rows(self) -> int:
        """Rows that are compared."""
        return sum(map(len, self.sequences))

    def keeps_logits(self, sequence: int, position: int) -> bool:
        """Whether the logits of this row are compared."""
        return position >= len(self.sequences[sequence]) - LOGIT_ROWS_KEPT

    def wrong_token(self, sequence: int, position: int) -> int:
        """A token that does not stand there."""
        ids = self.sequences[sequence]
        own = ids[position] if position < len(ids) else 0
        return (own + 1 + position % 5) % self.vocab_size


def make_scenario(sequences: Sequence[Sequence[int]], vocab_size: int) -> Scenario:
    """Steps for these sequences (two or more ids each): the first is prefilled whole, the others in chunks, and so on.

    The last tokens of each come one by one and with drafts, so that every kind of step is there at every length.
    """
    plans = [_turns(len(ids)) if number else _whole(len(ids)) for number, ids in enumerate(sequences)]
    steps = zip_longest(*plans, fillvalue=Turn(0))
    return Scenario(tuple(tuple(map(int, ids)) for ids in sequences), tuple(steps), vocab_size)


def _whole(length: int) -> list[Turn]:
    """Prefill in one step, or in as few as may be, then the last tokens."""
    tail = min(length // 2, 5)
    starts = range(0, length - tail, CHUNK)
    return [
        *(Turn(min(CHUNK, length - tail - start)) for start in starts),
        *_last(tail, ((1, 0), (1, 3), (2, 2), (1, 0))),
    ]


def _turns(length: int) -> list[Turn]:
    """A step late, a prefill in chunks, then the last tokens."""
    tail = min(length // 2, 4)
    left, most = length - tail, max(1, min(CHUNK // 2, 2 * (length - tail) // 3))
    chunks = [Turn(min(most, left - start)) for start in range(0, left, most)]
    return [Turn(0), *chunks, *_last(tail, ((1, 3), (2, 2), (1, 0)))]


def _last(left: int, wanted: Sequence[tuple[int, int]]) -> Iterator[Turn]:
    """Decode and verification by turns for the last `left` tokens."""
    for kept, wrong in wanted:
        if left:
            yield Turn(min(kept, left), wrong)
            left -= min(kept, left)
