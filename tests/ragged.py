"""Drives a paged graph as the runtime does, step by step, on stock onnxruntime or with our kernels: the plainest
possible scheduler.

Requests and a plan (rows a step for each request) flow in; each step's wanted rows and their logits flow out. Page ids
are shuffled and shared out up front, so that a graph that reads its neighbour's pages is found out.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import onnxruntime

from paceline.passes.compare_graphs import run_session, stock_session
from paceline.plugins import contract
from paceline.plugins.native.library import library_path
from paceline.runtime.engine_cpu import open_session, session_options
from paceline.toolchain.graph_file import save_graph

__all__ = ["MIXED_STEPS", "kernel_session", "run_ragged"]

# rows of requests 0, 1, 2 in each step: prefill of all, in chunks, one alone, decode, verification, all mixed
MIXED_STEPS = ((5, 1, 0), (0, 0, 13), (17, 1, 1), (1, 1, 1), (1, 5, 0), (4, 1, 6), (0, 0, 1))

DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}


def kernel_session(model: ir.Model) -> onnxruntime.InferenceSession:
    """A session with our kernels and onnxruntime's own optimizations, as an engine's."""
    options = session_options(threads=1)
    options.register_custom_ops_library(str(library_path()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.onnx"
        save_graph(model, path)
        return open_session(path, options)


def run_ragged(
    model: ir.Model,
    facts: contract.GraphFacts,
    requests: Sequence[np.ndarray],
    steps: Sequence[Sequence[int]] = MIXED_STEPS,
    seed: int = 0,
    session_of: Callable[[ir.Model], onnxruntime.InferenceSession] = stock_session,
) -> Iterator[tuple[list[tuple[int, int]], np.ndarray]]:
    """Yields for each step the wanted rows as (request, position) and their logits [R, vocab]."""
    rng = np.random.default_rng(seed)
    session = session_of(model)
    max_pages = max(-(-len(tokens) // facts.page_size) for tokens in requests)
    num_pages = max_pages * len(requests)
    page_table = rng.permutation(num_pages).reshape(len(requests), max_pages).astype(np.int32)
    pools = {
        contract.kv_pages_in(layer): rng.standard_normal(facts.pool_shape(layer, num_pages)).astype(
            DTYPES[facts.cache_dtype]
        )
        for layer in range(len(facts.layers))
    }
    computed = [0] * len(requests)
    for step in steps:
        active = [request for request, rows in enumerate(step) if rows]
        rows = [(r, computed[r] + i) for r in active for i in range(step[r])]
        for request in active:
            computed[request] += step[request]
        wanted = np.sort(rng.choice(len(rows), size=rng.integers(1, len(rows) + 1), replace=False))
        outputs = run_session(
            session,
            {
                contract.INPUT_IDS: np.array([requests[r][p] for r, p in rows]),
                contract.POSITIONS: np.array([p for _, p in rows]),
                contract.QUERY_START: np.cumsum([0, *(step[r] for r in active)], dtype=np.int32),
                contract.CONTEXT_LEN: np.array([computed[r] for r in active], np.int32),
                contract.PAGE_TABLE: page_table[active],
                contract.LOGIT_ROWS: wanted,
                **pools,
            },
        )
        pools = {contract.kv_pages_in(i): outputs[contract.kv_pages_out(i)] for i in range(len(facts.layers))}
        yield [rows[w] for w in wanted], outputs[contract.LOGITS]
