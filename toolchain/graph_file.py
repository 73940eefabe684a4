"""From a graph in memory to files: NAME.onnx, and NAME.onnx.data with the weights, tensor by tensor.

An `ir.Model` whose initializers may be lazy flows in; two files flow out, equal byte by byte for equal models: no
paths, times, scopes or doc strings, operator sets and functions in sorted order. The meaning of each of our operators
is attached, so that a stock onnxruntime runs the file. One file with the weights inside was the alternative and lost:
it needs them all in memory at once and ends at 2 GB.
"""

from pathlib import Path

import onnx_ir as ir

from ..passes.attach_meanings import with_meanings
from ..passes.tidy import strip_notes
from .errors import CheckpointError

__all__ = ["data_path", "open_graph", "save_graph"]

INLINE_BYTES = 256  # smaller constants stay in the graph: shape inference needs to read them
ALIGNMENT_BYTES = 4096  # a page of memory: weights are mapped, and kernels load whole cache lines


def data_path(path: Path) -> Path:
    """Where the weights of the graph at `path` lie."""
    return path.with_name(f"{path.name}.data")


def open_graph(path: Path) -> ir.Model:
    """The graph that `save_graph` wrote, ready for passes: weights stay in their file, meanings are left out.

    Raises: CheckpointError when it cannot be read.
    """
    try:
        model = ir.load(path)
    except Exception as error:  # protobuf and onnx_ir raise whatever a damaged file makes them stumble over
        raise CheckpointError(
            f"{path} cannot be read ({type(error).__name__}: {error})",
            needed="a graph written by 'paceline export'",
            do="check the path, or export again",
        ) from error
    model.functions.clear()
    return model


def save_graph(model: ir.Model, path: Path) -> None:
    """Write `model` to `path` and its weights to `data_path(path)`; reads one tensor at a time, keeps none.

    Drops the notes of exporters (`strip_notes`) from `model`; leaves it the same otherwise.
    """
    strip_notes(model)
    ir.save(
        with_meanings(model),
        path,
        external_data=data_path(path).name,
        size_threshold_bytes=INLINE_BYTES,
        alignment=ALIGNMENT_BYTES,
        align_threshold=ALIGNMENT_BYTES - 1,
        max_workers=1,
    )
