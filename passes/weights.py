"""Initializers that a pass derives from other initializers: merged, transposed, rounded, packed.

In: initializers whose bytes may still lie in a checkpoint. Out: initializers that know their name, dtype and shape at
once and compute their bytes only when somebody writes or runs the graph, one tensor at a time. Computing them in the
pass itself was simpler and lost: it holds every weight of the model in memory, twice.
"""

import re
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from .sliced_tensor import MakeSlice, SlicedTensor, slice_of

__all__ = [
    "constant_of",
    "derive",
    "derive_sliced",
    "int64_constant",
    "module_of",
    "read",
    "read_slice",
    "registered",
    "small_constant",
    "value_like",
]

WEIGHT = re.compile(r"\.(weight|bias|inv_freq)\b.*$")  # what follows the module in a state-dict name
SMALL_ELEMENTS = 1 << 16  # what a pass may read in order to decide: norm weights, shapes, scalars; never a matrix


def derive(name: str, dtype: ir.DataType, shape: tuple[int, ...], compute: Callable[[], np.ndarray]) -> ir.Value:
    """An initializer that calls `compute` for its bytes each time they are asked for, and keeps none of them.

    `compute` returns an array of `shape` in the numpy type of `dtype`. The value still has to be registered with
    the graph (`graph.register_initializer`).
    """

    def evaluate() -> ir.Tensor[np.ndarray]:
        array = compute()
        if array.shape != shape:
            raise AssertionError(f"{name} was announced as {list(shape)} and came out as {list(array.shape)}")
        return ir.Tensor(array, dtype=dtype, name=name)

    tensor = ir.LazyTensor(evaluate, dtype=dtype, shape=ir.Shape(shape), name=name)
    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype), const_value=tensor)


def derive_sliced(
    name: str,
    dtype: ir.DataType,
    shape: tuple[int, ...],
    make: MakeSlice,
    *,
    axis: int = 0,
    elements_each: int | None = None,
) -> ir.Value:
    """As `derive` for what may be large: `make(start, stop)` computes a part of it along `axis`; see `SlicedTensor`."""
    tensor = SlicedTensor(name, dtype, shape, make, axis=axis, elements_each=elements_each)
    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype), const_value=tensor)


def constant_of(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor behind `value` if it is an initializer that no caller can override, or a Constant node's output."""
    if value is None or value.is_graph_input():
        return None
    return ir.convenience.get_const_tensor(value)


def module_of(name: str) -> str | None:
    """The module whose parameter the initializer `name` is or comes from: "a.q+k" for "a.q.weight+a.k.weight/int8"."""
    if WEIGHT.search(name) is None:
        return None
    modules = [WEIGHT.sub("", part) for part in name.split("+")]
    return "+".join([modules[0], *(module.rpartition(".")[2] for module in modules[1:])])


def registered(graph: ir.Graph, initializer: ir.Value) -> ir.Value:
    """The graph's initializer of this name: the one it has already, or `initializer`, now registered."""
    name = str(initializer.name)
    found = graph.initializers.get(name)
    if found is None:
        graph.register_initializer(initializer)
        return initializer
    if (found.dtype, found.shape) != (initializer.dtype, initializer.shape):
        raise AssertionError(f"two initializers want to be {name}: {found} and {initializer}")
    return found


def read(value: ir.Value) -> np.ndarray:
    """The array of a constant; computed or read from disk now, and not kept."""
    tensor = constant_of(value)
    if tensor is None:
        raise AssertionError(f"{value.name} is no constant")
    return tensor.numpy()


def read_slice(value: ir.Value, axis: int, start: int, stop: int) -> np.ndarray:
    """Rows (axis 0) or columns (axis 1) of a constant; read now, and not kept."""
    tensor = constant_of(value)
    if tensor is None:
        raise AssertionError(f"{value.name} is no constant")
    return slice_of(tensor, axis, start, stop)


def small_constant(value: ir.Value | None) -> np.ndarray | None:
    """The array of a small constant, or None: for values that decide whether a pattern holds."""
    tensor = constant_of(value)
    return tensor.numpy() if tensor is not None and tensor.size <= SMALL_ELEMENTS else None


def int64_constant(graph: ir.Graph, numbers: list[int]) -> ir.Value:
    """The graph's initializer that holds these int64 `numbers` (axes, shapes, sizes): one a list, named by it."""
    name = f"int64{numbers}"
    tensor = ir.Tensor(np.array(numbers, dtype=np.int64), name=name)
    value = ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
    return registered(graph, value)


def value_like(other: ir.Value, name: str, last_axis: int | None = None) -> ir.Value:
    """A new value with the type and shape of `other`, the size of its last axis replaced by `last_axis`."""
    shape = other.shape
    if shape is not None and last_axis is not None:
        shape = ir.Shape([*shape.dims[:-1], last_axis])
    return ir.Value(name=name, type=other.type, shape=shape)
