"""What the runtime asks of an engine: run one step's batch, hand back logits. Nothing else crosses this line.

The CPU engine (engine_cpu.py) and the toy engine of the tests have no base class in common, only this protocol; an
abstract class with a half-implemented `run` lost because the engines share no code.
"""

import time
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..plugins.contract import GraphFacts
from .batch import Batch
from .errors import BundleError

__all__ = ["Engine", "TimedEngine", "check_pair"]


class Engine(Protocol):
    """One compiled graph with its page pools."""

    @property
    def facts(self) -> GraphFacts:
        """Sizes and limits of the graph."""

    @property
    def num_pages(self) -> int:
        """Pages in every layer's pool; draft and target of a pair have the same number."""

    def run(self, batch: Batch) -> npt.NDArray[np.float32]:
        """Write the new rows' keys and values into the pages and return logits [R, vocab], valid until the next run."""


class TimedEngine:
    """An engine that adds up the seconds spent inside `run`, so that the loop can tell host time from engine time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.facts = engine.facts
        self.num_pages = engine.num_pages
        self._elapsed_s = 0.0

    def run(self, batch: Batch) -> npt.NDArray[np.float32]:
        """As `Engine.run`."""
        start = time.perf_counter()
        logits = self._engine.run(batch)
        self._elapsed_s += time.perf_counter() - start
        return logits

    def take_s(self) -> float:
        """Seconds inside `run` since the last call."""
        elapsed, self._elapsed_s = self._elapsed_s, 0.0
        return elapsed


def check_pair(target: Engine, draft: Engine) -> None:
    """Raise `BundleError` unless `draft` can share page ids with `target`."""
    for what, has, needs in (
        ("page_size", draft.facts.page_size, target.facts.page_size),
        ("num_pages", draft.num_pages, target.num_pages),
    ):
        if has != needs:
            raise BundleError(
                f"the draft engine has {what} = {has}",
                needed=f"{needs} as the target's, since both share page ids",
                do="build both engines from one recipe and open them with the same number of pages",
            )
