"""One node of ours as a model: run by our kernel, or by its meaning on stock onnxruntime.

In: op type, attributes, and named arrays (weights may be constants). Out: sessions and their outputs. bfloat16 arrays
are ml_dtypes'; onnxruntime gets their bits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from paceline.plugins.meanings import MEANINGS, meaning_of
from paceline.plugins.native.library import library_path

__all__ = ["KernelCase", "bits_of"]

OUTPUTS = {
    "PagedAttention": ("out", "kv_pages_out"),
    "ResidualNorm": ("normalized", "total"),
}


SMALL_TYPES = {  # what onnxruntime's numpy knows nothing of
    np.dtype(ml_dtypes.bfloat16): onnx.TensorProto.BFLOAT16,
    np.dtype(ml_dtypes.float8_e4m3fn): onnx.TensorProto.FLOAT8E4M3FN,
}


def onnx_type(array: np.ndarray) -> int:
    if array.dtype in SMALL_TYPES:
        return SMALL_TYPES[array.dtype]
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def bits_of(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@dataclass(frozen=True)
class KernelCase:
    """`constants` become initializers, `examples` say type and rank of the graph's inputs."""

    op_type: str
    attributes: Mapping[str, float]
    constants: Mapping[str, np.ndarray]
    examples: Mapping[str, np.ndarray]

    def model(self) -> onnx.ModelProto:
        names = MEANINGS[self.op_type][0]
        present = [name in self.constants or name in self.examples for name in names]
        while not present[-1]:
            present.pop()
        function = meaning_of(self.op_type, self.attributes, present)
        inputs = [name if there else "" for name, there in zip(names, present, strict=False)]
        outputs = OUTPUTS.get(self.op_type, ("y",))
        node = helper.make_node(self.op_type, inputs, outputs, domain="paceline", **self.attributes)
        node.overload = function.overload
        graph = helper.make_graph(
            [node],
            "case",
            [_value(name, onnx_type(array), array.ndim) for name, array in self.examples.items()],
            [_value(name, *self._output_type(name)) for name in outputs],
            [_initializer(name, array) for name, array in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid("paceline", 1)]
        model = helper.make_model(graph, opset_imports=opsets, functions=[function])
        model.ir_version = 10
        onnx.checker.check_model(model)
        return model

    def kernel(self) -> "Runner":
        """The model with our library."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = 2
        options.register_custom_ops_library(str(library_path()))
        return Runner(self._session(options))

    def meaning(self) -> "Runner":
        """The model on stock onnxruntime."""
        return Runner(self._session(ort.SessionOptions()))

    def _session(self, options: ort.SessionOptions) -> ort.InferenceSession:
        options.log_severity_level = 4
        return ort.InferenceSession(self.model().SerializeToString(), options, providers=["CPUExecutionProvider"])

    def _output_type(self, name: str) -> tuple[int, int]:
        """Element type and rank; every op's first output has the rank of its first input."""
        if name == "kv_pages_out":
            return onnx_type(self.examples["kv_pages"]), 4
        return onnx.TensorProto.FLOAT, next(iter(self.examples.values())).ndim


class Runner:
    """Arrays in, arrays out, whatever their type."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session
        self._outputs = [(one.name, one.type) for one in session.get_outputs()]

    def __call__(self, **arrays: np.ndarray) -> list[np.ndarray]:
        binding = self._session.io_binding()
        kept = [np.ascontiguousarray(array) for array in arrays.values()]
        for name, array in zip(arrays, kept, strict=True):
            binding.bind_input(name, "cpu", 0, onnx_type(array), array.shape, array.ctypes.data)
        results = self._bind_outputs(binding, arrays)
        self._session.run_with_iobinding(binding)
        return results(binding)

    def _bind_outputs(self, binding, arrays):
        """Results in small types have no way through numpy: they are given memory of their own."""
        pool = arrays.get("kv_pages")
        held: dict[str, np.ndarray] = {}
        for name, kind in self._outputs:
            if kind in ("tensor(bfloat16)", "tensor(float8e4m3fn)"):
                held[name] = np.zeros_like(pool)
                binding.bind_output(name, "cpu", 0, onnx_type(pool), pool.shape, held[name].ctypes.data)
            else:
                binding.bind_output(name, "cpu")

        def results(done) -> list[np.ndarray]:
            values: Sequence = done.get_outputs()
            return [
                held[name] if name in held else value.numpy()
                for (name, _), value in zip(self._outputs, values, strict=True)
            ]

        return results


def _value(name: str, element_type: int, rank: int) -> onnx.ValueInfoProto:
    shape = [f"{name}_{axis}" for axis in range(rank)]
    return helper.make_tensor_value_info(name, element_type, shape)


def _initializer(name: str, array: np.ndarray) -> onnx.TensorProto:
    return helper.make_tensor(name, onnx_type(array), array.shape, bits_of(array), raw=True)
