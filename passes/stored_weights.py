"""How a graph says that a layer's weights are stored small: constants that standard ops bring back to float32.

    bf16, fp16         Cast(to float) of W; under it a Transpose stays where the table is shared with the embedding
    fp8, int8          DequantizeLinear(W, scale [N], axis=1): a scale a column
    blocks             Cast(Cast(DequantizeLinear(W, scale [K / block, N], axis=0, block_size=)) to 16 bits) to float:
                       a layer on 16-bit rows multiplies 16-bit weights

Written and recognised here, as rounded rows are in rounded_rows.py. The bytes of small weights are computed when
somebody writes or runs the graph, some columns at a time.
Source: https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html
"""

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx_ir as ir

from .linears import Linear, is_matrix_transpose
from .quantize_arrays import Quantized
from .rounded_rows import SIXTEEN_BITS, Place
from .sliced_tensor import SlicedTensor
from .weights import constant_of, derive_sliced, read_slice, registered

__all__ = ["StoredMatrix", "small_copy", "store_16_bits", "store_blocks", "store_columns", "stored_behind"]

Compute = Callable[[int, int], Quantized]
NUMPY_TYPES = {
    ir.DataType.BFLOAT16: ml_dtypes.bfloat16,
    ir.DataType.FLOAT16: np.float16,
    ir.DataType.INT4: ml_dtypes.int4,
}
FLOAT = ir.DataType.FLOAT


@dataclass(frozen=True)
class StoredMatrix:
    """`constant` as it lies in the file; `scale` and `block_size` (0: a scale a column) where it is quantized."""

    constant: ir.Value
    dtype: ir.DataType
    is_transposed: bool = False
    scale: ir.Value | None = None
    block_size: int = 0

    def steps(self, start: int, stop: int) -> np.ndarray:
        """Columns of [K, N], float32, without the scales; read now, not kept."""
        part = read_slice(self.constant, 0 if self.is_transposed else 1, start, stop)
        return np.asarray(part.T if self.is_transposed else part, np.float32)

    def columns(self, start: int, stop: int) -> np.ndarray:
        """Columns of [K, N], float32, as the graph multiplies with them; read now, not kept."""
        steps = self.steps(start, stop)
        if self.scale is None:
            return steps
        if not self.block_size:
            return np.asarray(steps * read_slice(self.scale, 0, start, stop), np.float32)
        scale = read_slice(self.scale, 1, start, stop)
        matrix = steps * np.repeat(scale, self.block_size, axis=0)[: len(steps)]
        return np.asarray(matrix.astype(ml_dtypes.bfloat16), np.float32)


def small_copy(graph: ir.Graph, weight: ir.Value, dtype: ir.DataType) -> ir.Value:
    """The constant `weight` rounded to `dtype`, nearest even: one initializer a graph, whoever asks."""
    tensor = constant_of(weight)
    assert tensor is not None
    shape = tuple(int(size) for size in tensor.shape.numpy())
    axis = tensor.axis if isinstance(tensor, SlicedTensor) else 0

    def make(start: int, stop: int) -> np.ndarray:
        return read_slice(weight, axis, start, stop).astype(NUMPY_TYPES[dtype])

    return registered(graph, derive_sliced(f"{weight.name}/{dtype.name.lower()}", dtype, shape, make, axis=axis))


def store_16_bits(place: Place, linear: Linear, dtype: ir.DataType) -> ir.Value:
    """The layer's matrix through 16 bits, as a float32 value; a matrix that is stored transposed stays so."""
    small = small_copy(place.graph, linear.weight, dtype)
    weights = place.add("weights", "Cast", [small], FLOAT, small.shape, to=FLOAT.value)
    if not linear.stored_transposed:
        return weights
    shape = ir.Shape([linear.in_features, linear.out_features])
    return place.add("transposed", "Transpose", [weights], FLOAT, shape, perm=[1, 0])


def store_columns(place: Place, name: str, shape: tuple[int, int], dtype: ir.DataType, compute: Compute) -> ir.Value:
    """A matrix [K, N] of `dtype` with a scale a column, as a float32 value; `compute(start, stop)` gives columns."""
    values = _derive_both(place.graph, name, dtype, shape, (shape[1],), compute)
    return place.add("weights", "DequantizeLinear", values, FLOAT, ir.Shape(shape), axis=1)


def store_blocks(
    place: Place, name: str, shape: tuple[int, int], dtype: ir.DataType, block: int, compute: Compute
) -> ir.Value:
    """The same with a scale for each `block` rows of a column, and the products' weights rounded to bfloat16."""
    full, blocks = ir.Shape(shape), (-(-shape[0] // block), shape[1])
    values = _derive_both(place.graph, name, dtype, shape, blocks, compute)
    exact = place.add("dequantized", "DequantizeLinear", values, FLOAT, full, axis=0, block_size=block)
    small = place.add("weights_16", "Cast", [exact], ir.DataType.BFLOAT16, full, to=ir.DataType.BFLOAT16.value)
    return place.add("weights", "Cast", [small], FLOAT, full, to=FLOAT.value)


def _derive_both(
    graph: ir.Graph,
    name: str,
    dtype: ir.DataType,
    shape: tuple[int, int],
    scale_shape: tuple[int, ...],
    compute: Compute,
) -> list[ir.Value]:
    """Matrix and scales, both in the same ranges of columns. Scales are small: they are kept until they are asked for.

    Quantizing a range twice was simpler and lost: the search over clips is most of an int4 build.
    """
    scales: dict[tuple[int, int], np.ndarray] = {}

    def stored(start: int, stop: int) -> np.ndarray:
        quantized = compute(start, stop)
        if start == 0:  # a new round: nobody has asked for what is left of the last one
            scales.clear()
        scales[start, stop] = quantized.scale
        return quantized.stored.astype(NUMPY_TYPES.get(dtype, quantized.stored.dtype))

    def scale(start: int, stop: int) -> np.ndarray:
        kept = scales.pop((start, stop), None)
        return compute(start, stop).scale if kept is None else kept

    rows, last_axis = shape[0], len(scale_shape) - 1
    matrix = derive_sliced(name, dtype, shape, stored, axis=1, elements_each=rows)
    factors = derive_sliced(f"{name}/scale", FLOAT, scale_shape, scale, axis=last_axis, elements_each=rows)
    return [registered(graph, matrix), registered(graph, factors)]


def stored_behind(weight: ir.Value) -> StoredMatrix | str:
    """How the matrix that a MatMul reads is stored, or the reason why it is no constant matrix."""
    node = weight.producer()
    if is_matrix_transpose(node):
        inner = stored_behind(node.inputs[0])  # type: ignore[union-attr, arg-type]
        return inner if isinstance(inner, str) else StoredMatrix(inner.constant, inner.dtype, not inner.is_transposed)
    if constant_of(weight) is not None:
        return _of_constant(weight)
    if node is None or node.domain != "" or node.inputs[0] is None:
        return f"the weight {weight.name} is not constant"
    if node.op_type == "Cast":
        return _behind_cast(node)
    return _behind_dequantize(node)


def _of_constant(weight: ir.Value) -> StoredMatrix | str:
    tensor = constant_of(weight)
    assert tensor is not None
    if len(tensor.shape) != 2:
        return f"the weight {weight.name} has shape {list(tensor.shape)}, not two axes"
    return StoredMatrix(weight, tensor.dtype)


def _behind_cast(node: ir.Node) -> StoredMatrix | str:
    """A 16-bit constant, or blocks that were rounded to 16 bits."""
    small = node.inputs[0]
    assert small is not None
    if small.dtype not in SIXTEEN_BITS:
        return f"{node.outputs[0].name} is a Cast of {small.dtype}, not of 16 bits"
    if constant_of(small) is not None:
        return _of_constant(small)
    inner = small.producer()
    if inner is None or inner.op_type != "Cast" or inner.inputs[0] is None:
        return f"the weight {small.name} is not constant"
    blocks = inner.inputs[0].producer()
    return _behind_dequantize(blocks) if blocks is not None else f"the weight {small.name} is not constant"


def _behind_dequantize(node: ir.Node) -> StoredMatrix | str:
    if node.domain != "" or node.op_type != "DequantizeLinear" or len(node.inputs) != 2:
        return f"the weight {node.outputs[0].name} comes from {node.op_type}"
    stored, scale = node.inputs
    tensor = constant_of(stored)
    if stored is None or tensor is None or constant_of(scale) is None:
        return f"the weight {node.outputs[0].name} or its scale is not constant"
    block = node.attributes.get_int("block_size", 0)
    axis = node.attributes.get_int("axis", 1)
    if axis != (0 if block else 1):
        return f"the scales of {stored.name} run along axis {axis}"
    return StoredMatrix(stored, tensor.dtype, scale=scale, block_size=block)
