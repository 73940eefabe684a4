"""Is a graph sound? Asked after every pass, so it must be cheap: one walk, no shape inference, no serialisation.

A model flows in, with the types it had before the pass; nothing flows out, or `UnsoundGraphError` with the first
fault. onnx's own checker was the alternative and lost: it wants the serialised model with all its weights, knows
nothing of our operators, and does not see a value that silently changed its type.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from ..plugins import contract

__all__ = ["GraphTypes", "UnsoundGraphError", "check_graph", "types_of"]


class UnsoundGraphError(Exception):
    """The graph has a fault; becomes a `PassError`, which knows the pass to blame."""


@dataclass(frozen=True)
class ValueType:
    """Type and shape of `value` at one moment; holding the value keeps its identity from being used again."""

    value: ir.Value
    dtype: ir.DataType | None
    shape: tuple[int | ir.SymbolicDim, ...] | None


@dataclass(frozen=True)
class GraphTypes:
    """The types of a graph's values at one moment, by identity and by name."""

    by_identity: Mapping[int, ValueType]
    by_name: Mapping[str, ValueType]

    def before(self, value: ir.Value) -> ValueType | None:
        """The type that `value`, or else the value whose name it took over, had then."""
        return self.by_identity.get(id(value)) or self.by_name.get(value.name or "")


def types_of(model: ir.Model) -> GraphTypes:
    """Type and shape of each value of the main graph, for a later `check_graph`."""
    types = [
        ValueType(value, value.dtype, None if value.shape is None else tuple(value.shape))
        for value in _values(model.graph)
    ]
    return GraphTypes({id(t.value): t for t in types}, {t.value.name: t for t in types if t.value.name})


def check_graph(model: ir.Model, before: GraphTypes) -> None:
    """Raise if a value dangles, has no name or a second owner, or lost the type it had `before`.

    Checked: every input is a graph input, an initializer or the output of an earlier node; names are unique and not
    empty; initializers hold a tensor; the graph's outputs are made; values that stayed, or took over a name, kept dtype
    (but page pools, whose dtype is the cache's) and static axes; graph inputs and outputs have a dtype.
    Raises: UnsoundGraphError.
    """
    graph = model.graph
    _check_initializers(graph)
    _check_order(graph)
    _check_names(graph)
    for value in _values(graph):
        _check_type(value, before)
    for value in (*graph.inputs, *graph.outputs):
        if value.dtype is None:
            raise UnsoundGraphError(f"{value.name} crosses the graph's border without a dtype")


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    inputs = {id(value) for value in graph.inputs}
    yield from (value for value in graph.initializers.values() if id(value) not in inputs)
    for node in graph:
        yield from node.outputs


def _check_initializers(graph: ir.Graph) -> None:
    for name, value in graph.initializers.items():
        if value.name != name:
            raise UnsoundGraphError(f"initializer {name} calls itself {value.name}")
        if value.const_value is None:
            raise UnsoundGraphError(f"initializer {name} holds no tensor")


def _check_order(graph: ir.Graph) -> None:
    known = {id(value) for value in graph.inputs} | {id(value) for value in graph.initializers.values()}
    for node in graph:
        for value in node.inputs:
            if value is not None and id(value) not in known:
                raise UnsoundGraphError(f"{node.op_type} {node.name} reads {value.name} before anything makes it")
        known.update(id(value) for value in node.outputs)
    for value in graph.outputs:
        if id(value) not in known:
            raise UnsoundGraphError(f"nothing makes the output {value.name}")


def _check_names(graph: ir.Graph) -> None:
    seen: set[str] = set()
    for value in _values(graph):
        if not value.name:
            if value.uses() or value.is_graph_output():
                raise UnsoundGraphError("a value that is used has no name")
        elif value.name in seen:
            raise UnsoundGraphError(f"two values are called {value.name}")
        else:
            seen.add(value.name)


def _check_type(value: ir.Value, types: GraphTypes) -> None:
    before = types.before(value)
    if before is None:
        return
    if before.dtype is not None and value.dtype != before.dtype and not contract.is_kv_pages(str(value.name)):
        raise UnsoundGraphError(f"{value.name} was {before.dtype} and became {value.dtype}")
    if before.shape is None or value.shape is None:
        return
    if len(before.shape) != len(value.shape):
        raise UnsoundGraphError(f"{value.name} had {len(before.shape)} axes and has {len(value.shape)}")
    for axis, (old, new) in enumerate(zip(before.shape, value.shape, strict=True)):
        if isinstance(old, int) and isinstance(new, int) and old != new:
            raise UnsoundGraphError(f"axis {axis} of {value.name} was {old} and became {new}")
