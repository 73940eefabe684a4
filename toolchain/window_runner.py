"""One window of tokens through a paged graph, alone: how graphs and engines are calibrated and measured.

A graph file and windows of ids flow in; logits of every position flow out, and whatever further values the graph was
given as outputs. It runs on stock onnxruntime, where our operators are computed by their meanings, or with our
kernels, which is what ships. Driving the runtime's loop was the alternative and lost: it answers with tokens.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnxruntime

from ..passes.compare_graphs import run_session
from ..plugins import contract
from ..plugins.contract import GraphFacts
from ..runtime.engine_cpu import kernel_options, session_options

__all__ = ["Runner", "WindowRunner"]

Arrays = Mapping[str, npt.NDArray[np.generic]]
CACHE_TYPES = {
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
}


class Runner(Protocol):
    """Whatever answers one window."""

    def logits(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """[T, vocab] for the T tokens of `ids`, each behind those before it."""


class WindowRunner:
    """A `Runner` over one onnxruntime session."""

    def __init__(self, session: onnxruntime.InferenceSession, facts: GraphFacts) -> None:
        self._session = session
        self._facts = facts

    @classmethod
    def on_stock(cls, path: Path, facts: GraphFacts, threads: int) -> "WindowRunner":
        """The graph at `path` as any stock onnxruntime runs it."""
        return cls(_open(path, stock_options(threads)), facts)

    @classmethod
    def with_kernels(cls, path: Path, facts: GraphFacts, threads: int) -> "WindowRunner":
        """The engine at `path` as the runtime runs it."""
        return cls(_open(path, kernel_options(threads)), facts)

    def logits(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """As `Runner.logits`."""
        found = run_session(self._session, self._inputs(ids), [contract.LOGITS])
        return np.asarray(found[contract.LOGITS], np.float32)

    def outputs(self, ids: Sequence[int]) -> dict[str, npt.NDArray[np.generic]]:
        """All outputs of the graph for one window."""
        return run_session(self._session, self._inputs(ids))

    def _inputs(self, ids: Sequence[int]) -> Arrays:
        facts, count = self._facts, len(ids)
        num_pages = -(-count // facts.page_size)
        pool_type = CACHE_TYPES[facts.cache_dtype]
        return {
            contract.INPUT_IDS: np.asarray(ids, np.int64),
            contract.POSITIONS: np.arange(count, dtype=np.int64),
            contract.QUERY_START: np.array([0, count], np.int32),
            contract.CONTEXT_LEN: np.array([count], np.int32),
            contract.PAGE_TABLE: np.arange(num_pages, dtype=np.int32)[None],
            contract.LOGIT_ROWS: np.arange(count, dtype=np.int64),
            **{
                contract.kv_pages_in(layer): np.zeros(facts.pool_shape(layer, num_pages), pool_type)
                for layer in range(len(facts.layers))
            },
        }


def stock_options(threads: int) -> onnxruntime.SessionOptions:
    """Constants are folded, and nothing else is moved: what Q/DQ pairs and casts round must stay rounded."""
    options = session_options(threads)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options


def _open(path: Path, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
