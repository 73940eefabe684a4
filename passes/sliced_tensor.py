"""Tensors that are made and written some slices at a time, so that no weight ever lies in memory as a whole.

A function that makes any range along one axis flows in; a tensor flows out that writes itself to a file range by range.
One whole tensor at a time was simpler and lost: an embedding in float32 beside its transposed copy is a gigabyte in
models whose checkpoint is no larger.

    axis 0    the ranges lie one behind the other in the file
    axis 1    a range of columns of [rows, columns]: each row's piece is written to its own place
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

__all__ = ["SLICE_ELEMENTS", "MakeSlice", "SlicedTensor", "slice_of"]

# 4 MB of float32. Peak of a build of a 1 GB checkpoint: 658 MiB with 1 << 22, 486 with 1 << 20, 475 with 1 << 18,
# of which 458 are there before the first weight is read; the larger blocks stay behind in the allocator.
SLICE_ELEMENTS = 1 << 20

MakeSlice = Callable[[int, int], np.ndarray]


class SlicedTensor(ir.LazyTensor):
    """A lazy tensor of at least one axis, `make(start, stop)` being its part along `axis` (0, or 1 of a matrix).

    `elements_each` counts the weights that are read for one index along the axis: a slice reads SLICE_ELEMENTS of them.
    """

    __slots__ = ("_elements_each", "_make", "_sizes", "axis")

    def __init__(
        self,
        name: str,
        dtype: ir.DataType,
        shape: tuple[int, ...],
        make: MakeSlice,
        *,
        axis: int = 0,
        elements_each: int | None = None,
    ) -> None:
        super().__init__(self._whole, dtype=dtype, shape=ir.Shape(shape), name=name)
        assert axis == 0 or (axis == 1 and len(shape) == 2), "slices of columns are a matrix's"
        assert dtype.bitwidth >= 8 or (dtype.bitwidth == 4 and axis == 1), "a slice must end with a byte"
        self.axis = axis
        self._sizes = shape
        self._make = make
        self._elements_each = elements_each or max(1, int(np.prod(shape)) // max(1, shape[axis]))

    def slice(self, start: int, stop: int) -> np.ndarray:
        """The part from `start` to `stop` along `axis`; computed now, not kept."""
        array = self._make(start, stop)
        expected = (*self._sizes[: self.axis], stop - start, *self._sizes[self.axis + 1 :])
        if array.shape != expected:
            raise AssertionError(f"{self.name} was announced as {list(expected)} and came out as {list(array.shape)}")
        return array

    def tofile(self, file: Any) -> None:
        """Write the bytes to a file that is open for writing, slice by slice."""
        if self.axis == 0:
            for start, stop in self._ranges():
                file.write(_bytes_of(self.slice(start, stop)))
        elif self._ends_with_bytes() and (descriptor := _descriptor_of(file)) is not None:
            self._scatter(file, descriptor)
        else:
            super().tofile(file)

    def _whole(self) -> ir.TensorProtocol:
        return ir.Tensor(self.slice(0, self._sizes[self.axis]), dtype=self.dtype, name=self.name)

    def _ends_with_bytes(self) -> bool:
        """Whether rows do, and with them pieces of even length."""
        return self.dtype.bitwidth >= 8 or self._sizes[1] % 2 == 0

    def _ranges(self) -> Iterator[tuple[int, int]]:
        size, step = self._sizes[self.axis], max(1, SLICE_ELEMENTS // self._elements_each)
        step += step % 2  # 4-bit numbers come in pairs, and scales in the ranges of their matrix
        return ((start, min(start + step, size)) for start in range(0, size, step))

    def _scatter(self, file: Any, descriptor: int) -> None:
        file.flush()
        begin, columns, bits = file.tell(), self._sizes[1], self.dtype.bitwidth
        for start, stop in self._ranges():
            for row, piece in enumerate(np.ascontiguousarray(self.slice(start, stop))):
                _write_at(descriptor, _bytes_of(piece), begin + (row * columns + start) * bits // 8)
        file.seek(begin + self.nbytes)


def slice_of(tensor: ir.TensorProtocol, axis: int, start: int, stop: int) -> np.ndarray:
    """Any tensor's part along `axis`; one that is not sliced along it is read as a whole."""
    if isinstance(tensor, SlicedTensor) and tensor.axis == axis:
        return tensor.slice(start, stop)
    array = tensor.numpy()
    return array[start:stop] if axis == 0 else array[:, start:stop]


def _descriptor_of(file: Any) -> int | None:
    """The number of an open file, None for a stream in memory."""
    try:
        return int(file.fileno())
    except (AttributeError, OSError):
        return None


def _bytes_of(array: np.ndarray) -> memoryview:
    """The bytes of an array; of two 4-bit numbers the first is the lower half of theirs, as ONNX has it."""
    if array.dtype == ml_dtypes.int4:
        halves = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & 15
        array = halves[0::2] | halves[1::2] << 4
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _write_at(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written
