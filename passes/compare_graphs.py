"""Do two graphs compute the same? Both are run on stock onnxruntime on the same inputs, and their outputs compared.

Two models and named arrays flow in; the largest difference and where it is flow out. Nothing of ours runs here: no
kernel library is registered, so every operator of ours is computed by its meaning, the function in standard operators.
Comparing structure instead was the alternative and lost: it cannot say that a rewrite is wrong.
"""

import ctypes
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import onnxruntime

from .attach_meanings import with_meanings

__all__ = ["Difference", "compare_graphs", "run_graph", "run_session", "stock_session"]

# by onnxruntime's name: numpy's type, one of the same size that numpy has itself, onnx's
SMALL_FLOATS = {
    "tensor(bfloat16)": (ml_dtypes.bfloat16, np.uint16, ir.DataType.BFLOAT16),
    "tensor(float8e4m3fn)": (ml_dtypes.float8_e4m3fn, np.uint8, ir.DataType.FLOAT8E4M3FN),
}

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Difference:
    """The largest absolute difference over all outputs that both graphs have, and the output it is in."""

    max_abs: float
    output: str


def compare_graphs(before: ir.Model, after: ir.Model, inputs: Arrays) -> Difference:
    """Run both on `inputs` (each takes those it has) and compare the outputs that both have.

    A difference in shape, or a NaN on one side only, counts as infinite.
    """
    wanted, found = run_graph(before, inputs), run_graph(after, inputs)
    common = [name for name in wanted if name in found]
    if not common:
        raise ValueError(f"no output in common: {sorted(wanted)} and {sorted(found)}")
    return max((Difference(_max_abs(wanted[name], found[name]), name) for name in common), key=lambda d: d.max_abs)


def run_graph(model: ir.Model, inputs: Arrays) -> dict[str, np.ndarray]:
    """The outputs of `model` on stock onnxruntime; see `stock_session` and `run_session`."""
    return run_session(stock_session(model), inputs)


def stock_session(model: ir.Model) -> onnxruntime.InferenceSession:
    """A session on stock onnxruntime: meanings attached, one thread, no graph optimizations, no files left behind."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with tempfile.TemporaryDirectory() as folder:  # a file, because a message in memory ends at 2 GB
        path = Path(folder) / "graph.onnx"
        ir.save(with_meanings(model), path, external_data="graph.onnx.data", max_workers=1)
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run_session(
    session: onnxruntime.InferenceSession, inputs: Arrays, wanted: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """The session's outputs by name, all or those `wanted`; small floats come and go as ml_dtypes' types.

    Inputs that the graph does not have are left out; one that is missing is onnxruntime's error.
    """
    feeds = {value.name: _ort_value(inputs[value.name]) for value in session.get_inputs() if value.name in inputs}
    names = [value.name for value in session.get_outputs()] if wanted is None else list(wanted)
    results = session.run_with_ort_values(names, feeds)
    return {name: _array(value) for name, value in zip(names, results, strict=True)}


def _ort_value(array: np.ndarray) -> onnxruntime.OrtValue:
    """numpy has no small floats of its own, so their bits travel as whole numbers under onnx's element type."""
    for dtype, bits, onnx_type in SMALL_FLOATS.values():
        if array.dtype == dtype:
            return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(bits), onnx_type.value)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _array(value: onnxruntime.OrtValue) -> np.ndarray:
    """A copy of `value` as an array; small floats are read through their memory: onnxruntime's numpy() refuses them."""
    if value.data_type() not in SMALL_FLOATS:
        return np.array(value.numpy())
    bits = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(bits, dtype=SMALL_FLOATS[value.data_type()][0]).reshape(value.shape())


def _max_abs(wanted: np.ndarray, found: np.ndarray) -> float:
    if wanted.shape != found.shape or not np.array_equal(np.isnan(wanted), np.isnan(found)):
        return math.inf
    if wanted.size == 0:
        return 0.0
    return float(np.nanmax(np.abs(wanted.astype(np.float64) - found.astype(np.float64)), initial=0.0))
