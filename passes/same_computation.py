"""Do two graphs compute the same, node for node? A proof by structure, for the many passes that change names or order.

A model flows in; a key flows out: two models with equal keys compute equal bits, whatever their nodes are called, in
whatever order they stand, and whether an expression is written once or twice. Unequal keys say nothing. Trusting the
count that a pass returns was the alternative and lost: a wrong pass may count wrong, too.
"""

from collections.abc import Hashable

import onnx_ir as ir

__all__ = ["Numbers", "computation_key"]

Key = Hashable
SMALL_ELEMENTS = 64  # of constants that are compared by their bytes


class Numbers:
    """A small number for each distinct key, so that keys of deep graphs stay small."""

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}

    def of(self, key: Key) -> int:
        """The number of `key`; equal keys have equal numbers."""
        return self._numbers.setdefault(key, len(self._numbers))


def computation_key(model: ir.Model, numbers: Numbers | None = None) -> frozenset[tuple[str, int]]:
    """By output, the number of the expression behind it; compare keys that were made with the same `numbers` only.

    Large constants are told apart by identity: a copy of a weight counts as another one.
    """
    numbers = numbers or Numbers()
    graph = model.graph
    keys: dict[ir.Value, int] = {value: numbers.of(("input", value.name)) for value in graph.inputs}
    for node in graph:
        inputs = tuple(-1 if value is None else _key_of(value, keys, numbers) for value in node.inputs)
        expression = numbers.of((node.domain, node.op_type, _attributes(node), inputs))
        for place, output in enumerate(node.outputs):
            keys[output] = numbers.of((expression, place))
    return frozenset((str(value.name), _key_of(value, keys, numbers)) for value in graph.outputs)


def _key_of(value: ir.Value, keys: dict[ir.Value, int], numbers: Numbers) -> int:
    if value not in keys:
        keys[value] = numbers.of(_constant_key(value.const_value))
    return keys[value]


def _constant_key(tensor: ir.TensorProtocol | None) -> Key:
    """A large tensor is its own key, which keeps it alive as long as its number."""
    if tensor is None or tensor.size > SMALL_ELEMENTS:
        return ("constant", Identity(tensor))
    return ("constant", tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes())


class Identity:
    """Equal to itself only, and holds what it stands for."""

    def __init__(self, thing: object) -> None:
        self._thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self._thing is other._thing

    def __hash__(self) -> int:
        return id(self._thing)


def _attributes(node: ir.Node) -> Key:
    return tuple(sorted((name, _attribute_key(attribute)) for name, attribute in node.attributes.items()))


def _attribute_key(attribute: ir.Attr) -> str:
    """Tensors and graphs by identity, everything else by its value."""
    value = attribute.value
    if isinstance(value, (int, float, str, bytes)):
        return repr(value)
    if isinstance(value, (list, tuple)) and all(isinstance(one, (int, float, str, bytes)) for one in value):
        return repr(tuple(value))
    return f"{type(value).__name__} at {id(value)}"
