"""Graphs that run from files whose weights are written once, however many versions of the graph there are.

A model flows in; a session on stock onnxruntime flows out. Each large tensor has a file of its own, which every later
graph with the same tensor names again: between two passes most weights stay, and writing them is what takes time.
Files that the newest graph does not need are removed, so that the disk holds one graph's weights and not twenty.
"""

from pathlib import Path

import onnx_ir as ir
import onnxruntime

from .attach_meanings import with_meanings

__all__ = ["WeightFiles"]

INLINE_BYTES = 1024
FOLDED_BYTES = 1 << 30  # SmolLM2-135M, packed: 11 s a graph folded, 3.1 GB at most; 25 s and 1.0 GB as it stands
GRAPH = "graph.onnx"


class WeightFiles:
    """The tensors that lie in `folder`, by identity."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._folder, self._threads = folder, threads
        self._files: dict[int, tuple[ir.TensorProtocol, ir.ExternalTensor]] = {}
        self._written = 0

    def open_session(self, model: ir.Model) -> onnxruntime.InferenceSession:
        """A session of `model` as it stands now. Meanings are attached; constants of smaller graphs are folded."""
        copy = with_meanings(model.clone())
        needed = set()
        for value in copy.graph.initializers.values():
            tensor = value.const_value
            if tensor is not None and tensor.nbytes > INLINE_BYTES:
                needed.add(id(tensor))
                value.const_value = self._external(tensor)
        path = self._folder / GRAPH
        ir.save(copy, path)
        num_bytes = sum(value.const_value.nbytes for value in copy.graph.initializers.values() if value.const_value)
        options = self._options(folds=num_bytes <= FOLDED_BYTES)
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._drop(set(self._files) - needed)
        return session

    def _external(self, tensor: ir.TensorProtocol) -> ir.ExternalTensor:
        if id(tensor) not in self._files:
            name = f"{self._written}.bin"
            self._written += 1
            with (self._folder / name).open("wb") as file:
                tensor.tofile(file)  # type: ignore[attr-defined]
            external = ir.ExternalTensor(
                name,
                0,
                tensor.nbytes,
                tensor.dtype,
                shape=ir.Shape([int(size) for size in tensor.shape.numpy()]),
                name=str(tensor.name),
                base_dir=self._folder,
            )
            self._files[id(tensor)] = (tensor, external)
        return self._files[id(tensor)][1]

    def _drop(self, keys: set[int]) -> None:
        for key in keys:
            _, external = self._files.pop(key)
            (self._folder / external.location).unlink(missing_ok=True)

    def _options(self, folds: bool) -> onnxruntime.SessionOptions:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        levels = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = levels.ORT_ENABLE_BASIC if folds else levels.ORT_DISABLE_ALL
        options.log_severity_level = 3
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        options.add_session_config_entry("session.disable_prepacking", "1")
        return options
