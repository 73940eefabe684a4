"""What a graph is asked when a pass is verified: prompts, and the ragged steps in which a paged graph gets them.

Token ids of real text flow in; a `Scenario` flows out: prefill whole and in chunks, decode, verification of drafts
whose wrong tokens are taken back, and all of that mixed in one step. A graph that is not paged yet takes each sequence
whole; its answers carry the same names, (sequence, position), and can be compared with the paged one's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

__all__ = ["Scenario", "Turn", "make_scenario"]

CHUNK = 64  # most rows of one step: their activations in all layers are in memory at once
SEED = 7
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
    rng = np.random.default_rng(SEED)
    plans = [[Turn(0)] * number + list(_turns(len(ids), number, rng)) for number, ids in enumerate(sequences)]
    steps = zip_longest(*plans, fillvalue=Turn(0))
    return Scenario(tuple(tuple(map(int, ids)) for ids in sequences), tuple(steps), vocab_size)


def _turns(length: int, number: int, rng: np.random.Generator) -> Iterator[Turn]:
    """Prefill, then decode and verification by turns for the last tokens."""
    tail = min(length // 2, 5)
    left = length - tail
    while left:
        most = CHUNK if number == 0 else max(1, min(CHUNK // 2, length // 3))
        yield Turn(chunk := min(left, most if number == 0 else int(rng.integers(1, most + 1)) + most // 2))
        left -= chunk
    left = tail
    for kept, wrong in ((1, 0), (1, 3), (2, 2), (1, 0)):
        if left:
            yield Turn(min(kept, left), wrong)
            left -= min(kept, left)
