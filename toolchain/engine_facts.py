"""What a manifest says of an engine file beyond its digest: what reads it, and what a step in it takes.

An engine's graph file flows in (no weights are read); the entry with its needs flows out. Versions are read from the
file and not from whatever wrote it: what counts is what stands there.
"""

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from ..runtime.manifest import EngineEntry, EngineNeeds

__all__ = ["ONNXRUNTIME", "row_bytes", "with_needs"]

ONNXRUNTIME = "1.23"  # the oldest that the extra `cpu` names: opset 23 and our kernel library's interface


def with_needs(entry: EngineEntry, bundle: Path) -> EngineEntry:
    """`entry` with what its file in the folder `bundle` says; no instruction set: kernels choose theirs at run time."""
    model = ir.load(bundle / entry.path)
    needs = EngineNeeds(onnxruntime=ONNXRUNTIME, opset=model.opset_imports.get(""), ir_version=model.ir_version)
    return replace(entry, needs=needs, row_bytes=row_bytes(model.graph))


def row_bytes(graph: ir.Graph) -> int:
    """The most that values between nodes take at one time, for each row of a step.

    A value lives from its node to its last reader. Logits and page pools are the runtime's own and are left out.
    """
    last_use = {
        value: step for step, node in enumerate(graph) for value in node.inputs if value is not None
    }  # later steps overwrite earlier ones
    live = most = 0
    ending: dict[int, int] = {}
    for step, node in enumerate(graph):
        born = [(value, _bytes_per_row(value)) for value in node.outputs if not value.is_graph_output()]
        for value, size in born:
            ending[last_use.get(value, step)] = ending.get(last_use.get(value, step), 0) + size
        live += sum(size for _, size in born)
        most = max(most, live)
        live -= ending.pop(step, 0)
    return most


def _bytes_per_row(value: ir.Value) -> int:
    """Bytes of one row; 0 for a value that does not grow with rows, or whose shape is not known."""
    shape, dtype = value.shape, value.dtype
    if shape is None or dtype is None or not shape or isinstance(shape[0], int):
        return 0
    size = dtype.itemsize
    for axis in list(shape)[1:]:
        size *= axis if isinstance(axis, int) else 1
    return int(size)
