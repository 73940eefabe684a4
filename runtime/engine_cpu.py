"""The CPU engine: one lowered graph in onnxruntime, with our kernels, its page pools bound once.

A `Batch` flows in; logits flow out as a view into a buffer that the next run overwrites. Pools are bound as input and
output of one address, so the attention kernel writes in place. Feeding a dictionary to `session.run` lost: it copies
every output and re-binds 120 tensors a step.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from ..plugins import contract
from ..plugins.contract import GraphFacts
from ..plugins.native.library import library_path
from .batch import Batch
from .check_engine import check_engine
from .errors import BundleError, NativeLibraryError

__all__ = ["CpuEngine", "kernel_options", "session_options"]

ONNX_TYPES = {"float32": 1, "float16": 10, "bfloat16": 16, "float8e4m3fn": 17}  # onnx.TensorProto.DataType
# bytes that numpy can hold
POOL_TYPES = {"float32": np.float32, "float16": np.uint16, "bfloat16": np.uint16, "float8e4m3fn": np.uint8}
INPUTS = (
    contract.INPUT_IDS,
    contract.POSITIONS,
    contract.QUERY_START,
    contract.CONTEXT_LEN,
    contract.PAGE_TABLE,
    contract.LOGIT_ROWS,
)


class CpuEngine:
    """See runtime/engine.py: `Engine`. Not for use from several threads at once."""

    def __init__(self, session: ort.InferenceSession, facts: GraphFacts, num_pages: int) -> None:
        self.facts = facts
        self.num_pages = num_pages
        self._session = session
        self._binding = session.io_binding()
        self._pools = [self._bind_pool(layer_id) for layer_id in range(len(facts.layers))]
        self._logits = np.empty((0, facts.vocab_size), np.float32)

    @classmethod
    def open(cls, path: Path, facts: GraphFacts, num_pages: int, threads: int, num_engines: int = 1) -> "CpuEngine":
        """The engine file at `path` with our kernels, on `threads` threads; `num_engines` take turns on the processor.

        Raises: NativeLibraryError when the kernels are missing or do not fit, BundleError when the file does not load.
        """
        session = open_session(path, kernel_options(threads, num_engines))
        check_engine(path.name, facts, session.get_inputs(), session.get_outputs())
        return cls(session, facts, num_pages)

    @classmethod
    def open_without_kernels(cls, path: Path, facts: GraphFacts, num_pages: int, threads: int) -> "CpuEngine":
        """The same file on stock onnxruntime: every op by its meaning in standard ops. Slow; the oracle of tests."""
        return cls(open_session(path, session_options(threads)), facts, num_pages)

    def run(self, batch: Batch) -> npt.NDArray[np.float32]:
        """As `Engine.run`."""
        for name, array in zip(INPUTS, arrays_of(batch), strict=True):
            self._binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        logits = self._logits_of(len(batch.logit_rows))
        self._binding.bind_output(contract.LOGITS, "cpu", 0, np.float32, logits.shape, logits.ctypes.data)
        self._session.run_with_iobinding(self._binding)
        return logits

    def _logits_of(self, rows: int) -> npt.NDArray[np.float32]:
        if rows > len(self._logits):
            self._logits = np.empty((rows, self.facts.vocab_size), np.float32)
        return self._logits[:rows]

    def _bind_pool(self, layer_id: int) -> npt.NDArray[np.generic]:
        shape = self.facts.pool_shape(layer_id, self.num_pages)
        pool = np.zeros(shape, POOL_TYPES[self.facts.cache_dtype])
        onnx_type = ONNX_TYPES[self.facts.cache_dtype]
        self._binding.bind_input(contract.kv_pages_in(layer_id), "cpu", 0, onnx_type, shape, pool.ctypes.data)
        self._binding.bind_output(contract.kv_pages_out(layer_id), "cpu", 0, onnx_type, shape, pool.ctypes.data)
        return pool


def arrays_of(batch: Batch) -> Sequence[npt.NDArray[np.int32] | npt.NDArray[np.int64]]:
    """The batch's arrays in the order of `INPUTS`."""
    return (
        batch.input_ids,
        batch.positions,
        batch.query_start,
        batch.context_len,
        batch.page_table,
        batch.logit_rows,
    )


def session_options(threads: int, num_engines: int = 1) -> ort.SessionOptions:
    """One pool of `threads` threads that keep spinning between ops: waking them took a step from 8.1 to 13.1 ms.

    With a second engine they stop at the end of each run, or they would take the processor from the other engine's:
    target and draft together went from 22 to 43 tokens a second on two cores.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    if num_engines > 1:
        options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def kernel_options(threads: int, num_engines: int = 1) -> ort.SessionOptions:
    """`session_options` with our kernels. Raises: NativeLibraryError when they are missing or do not fit."""
    options = session_options(threads, num_engines)
    kernels = library_path()
    try:
        options.register_custom_ops_library(str(kernels))
    except Exception as error:
        raise NativeLibraryError(
            f"onnxruntime {ort.__version__} does not take {kernels.name} ({error})",
            needed="onnxruntime 1.23 or newer",
            do="pip install -U 'paceline[cpu]'",
        ) from error
    return options


def open_session(path: Path, options: ort.SessionOptions) -> ort.InferenceSession:
    """A session on the CPU provider. Raises: BundleError with onnxruntime's reason."""
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common base
        raise BundleError(
            f"{path.name} does not load ({error})",
            needed="an engine that this onnxruntime reads",
            do="build the bundle again with this version, or install the one in its manifest",
        ) from error
