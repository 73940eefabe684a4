"""A language model without weights whose every output depends on what really lies in its pages.

In: the same `Batch` as a real engine. Out: logits that are a hash of the whole context *as read back through the page
table*: a wrong page, position, stale row or foreign prefix changes tokens, and keeps changing them. A cell stores the
token and the position it was computed for, as a rotated key would. Contexts mostly lead into short loops of tokens, so
that n-gram look-up and the draft often guess right; one position in four depends on everything before it.

`agreement` < 1 makes a draft of it: so often (by a hash of the context) it prefers what the target prefers.
"""

from dataclasses import dataclass, field

import numpy as np

from paceline.plugins.contract import GraphFacts, LayerCache
from paceline.runtime.batch import Batch

VOCAB = 40
PAGE_SIZE = 4
MAX_POSITIONS = 160
MASK = (1 << 64) - 1

_SCALE = np.arange(1, MAX_POSITIONS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
_SPREAD = np.arange(1, VOCAB + 1, dtype=np.uint64) * np.uint64(0xD6E8FEB86659FD93)


def toy_facts(page_size: int = PAGE_SIZE) -> GraphFacts:
    """Facts of a graph with one small layer."""
    return GraphFacts(VOCAB, 1, MAX_POSITIONS, page_size, "float32", (LayerCache(1, 1),))


@dataclass
class ToyEngine:
    """Implements the runtime's `Engine`; `num_rows` counts rows run, `num_runs` calls."""

    num_pages: int
    page_size: int = PAGE_SIZE
    agreement: float = 1.0
    num_rows: int = 0
    num_runs: int = 0
    facts: GraphFacts = field(init=False)

    def __post_init__(self) -> None:
        self.facts = toy_facts(self.page_size)
        garbage = np.random.default_rng(7).integers(0, 1 << 62, self.num_pages * self.page_size)
        self._cells = garbage.astype(np.uint64)

    def run(self, batch: Batch) -> np.ndarray:
        """Write all new rows, then answer for the wanted ones, as the contract says."""
        self.num_runs += 1
        self.num_rows += len(batch.input_ids)
        owner = np.searchsorted(batch.query_start, np.arange(len(batch.input_ids)), side="right") - 1
        slot = batch.context_len[owner] - (batch.query_start[owner + 1] - np.arange(len(batch.input_ids)))
        self._cells[self._cell_ids(batch, owner, slot)] = _cell_of(batch.input_ids, batch.positions)
        logits = np.empty((len(batch.logit_rows), VOCAB), np.float32)
        for i, row in enumerate(batch.logit_rows.tolist()):
            positions = np.arange(slot[row] + 1)
            logits[i] = self._answer(self._cells[self._cell_ids(batch, owner[row], positions)])
        return logits

    def answer_to(self, token_ids: np.ndarray) -> np.ndarray:
        """Logits [VOCAB] after a bare list of tokens, without any pages: what `run` must come to."""
        return self._answer(_cell_of(token_ids, np.arange(len(token_ids))))

    def _cell_ids(self, batch: Batch, owner: np.ndarray, slot: np.ndarray) -> np.ndarray:
        pages = batch.page_table[owner, slot // self.page_size]
        return pages * self.page_size + slot % self.page_size

    def _answer(self, cells: np.ndarray) -> np.ndarray:
        """Logits [VOCAB] after a context; mild noise everywhere, one clear favourite."""
        last, whole = int(cells[-1] & np.uint64(0xFF)), _mix(int((cells * _SCALE[: len(cells)]).sum()))
        noise = ((_SPREAD * np.uint64(whole | 1)) >> np.uint64(40)).astype(np.float32) / 2**24
        logits = noise * 2.0
        follows_loop = whole % 4 != 0
        favourite = (last * 3 + 1) % 7 if follows_loop else (whole >> 8) % VOCAB
        if (whole >> 20) % 1000 >= self.agreement * 1000:
            favourite = (favourite + 1) % VOCAB
        logits[favourite] += 4.0
        return logits


def _cell_of(token_ids: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """What a cell keeps: the token in the low byte, so that the last one can be read back, a hash of both above it."""
    both = token_ids.astype(np.uint64) * np.uint64(1_000_003) + positions.astype(np.uint64)
    return (both * np.uint64(0x9FB21C651E98DF25)) << np.uint64(8) | token_ids.astype(np.uint64)


def _mix(value: int) -> int:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)
