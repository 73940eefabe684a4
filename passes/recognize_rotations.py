"""Rotary embeddings recognized by what they do, however a model spells them out.

In: `x * c + r * s` where r is x with its elements moved and some of them negated. Out: one RotaryEmbedding, in halves
or in pairs, whole heads or a part of each. The few operators between x and r are run on a numbered input, and those
that make the tables on a handful of positions: the numbers say which rotation it is. A pattern for each spelling (a
stack of strided slices, a reshape of pairs, a repeated table) was the alternative and lost: there is always one more.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ..plugins import contract
from .base import Fusion, remove_dead_nodes, run_fusion
from .compare_graphs import run_graph
from .merge_slices import part_of
from .target import Target
from .weights import int64_constant

__all__ = ["recognize_rotations"]

PROBED_POSITIONS = np.array([0, 1, 2, 5, 17, 40, 63, 101])  # tables may be stored, and short in tests
PROBED_ROWS = 3
SWAPPED = [0, 2, 1, 3]  # [batch, T, heads, width] <-> [batch, heads, T, width]
LAST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Candidate:
    """`total = x * cos + moved * sin`, where `moved` may come from x."""

    total: ir.Node
    x: ir.Value
    cos: ir.Value
    moved: ir.Value
    sin: ir.Value


@dataclass(frozen=True)
class Rotation:
    """What the candidate is: `x` turned by the angles whose tables are `cos` and `sin`, each column twice."""

    total: ir.Node  # its output is what the rotation replaces: the sum, or the Concat that puts the rest behind it
    x: ir.Value
    cos: ir.Value
    sin: ir.Value
    rotary_dim: int
    interleaved: int
    is_backward: bool
    rows_axis: int


def recognize_rotations(model: ir.Model, target: Target) -> int:
    """Replace rotations in small operators by RotaryEmbedding; returns how many.

    before:  Add(Mul(x, c), Mul(r, s)),  r = (-x1, x0, -x3, x2 ...) or (-x[half:], x[:half]), c and s from positions
    after:   RotaryEmbedding(x, every other column or half of c, of s, interleaved=1 or 0)
    before:  Concat(the above of x[:width], x[width:])
    after:   RotaryEmbedding(x, ..., rotary_embedding_dim=width)

    The other sense of rotation, (x1, -x0 ...), gets -s. [1, T, heads, width] is transposed for the operator and back.
    Kept untouched: other moves; tables whose two columns of a pair differ, or that depend on more than positions.
    Source: https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html
    """
    count = run_fusion(model, target, Fusion(_pattern, _check, _rewrite))
    remove_dead_nodes(model)
    return count


def _pattern(node: ir.Node) -> list[Candidate] | None:
    """Every way to read `node` as a rotation: two products have four operands in either order."""
    if node.domain != "" or node.op_type != "Add":
        return None
    products = [value.producer() if value is not None else None for value in node.inputs]
    if any(maker is None or maker.domain != "" or maker.op_type != "Mul" for maker in products):
        return None
    found = [
        Candidate(node, x, cos, moved, sin)
        for one, other in (products, products[::-1])
        for x, cos in (one.inputs, one.inputs[::-1])  # type: ignore[union-attr]
        for moved, sin in (other.inputs, other.inputs[::-1])  # type: ignore[union-attr]
        if x is not None and cos is not None and moved is not None and sin is not None
        if _is_rotated_shape(x.shape) and _is_moved_from(moved, x)
    ]
    return found or None


def _is_rotated_shape(shape: ir.Shape | None) -> bool:
    """[1, heads, T, even] or [1, T, heads, even], T alone not known."""
    if shape is None or len(shape) != 4 or not isinstance(shape[3], int) or shape[3] % 2:
        return False
    return shape[0] == 1 and isinstance(shape[1], int) != isinstance(shape[2], int)


def _is_moved_from(moved: ir.Value, x: ir.Value) -> bool:
    """Whether `moved` is made of x and constants within a few steps, and is not x."""
    seen, edge = {x}, [moved]
    for _ in range(24):  # the longest spelling has nine operators
        if not edge:
            return moved is not x
        value = edge.pop()
        if value in seen or value.is_initializer():
            continue
        seen.add(value)
        node = value.producer()
        if node is None:
            return False
        edge.extend(source for source in node.inputs if source is not None)
    return False


def _check(candidates: list[Candidate], target: Target) -> Rotation | str:
    del target  # what an operator is does not depend on the target
    reason = "the result is a graph output"
    if candidates[0].total.outputs[0].is_graph_output():
        return reason
    for candidate in candidates:
        rotation = _rotation(candidate)
        if isinstance(rotation, Rotation):
            return _whole_head(rotation)
        reason = rotation
    return reason


def _rotation(found: Candidate) -> Rotation | str:
    assert found.x.shape is not None
    width = int(found.x.shape[3])  # type: ignore[arg-type]
    rows_axis = 1 if isinstance(found.x.shape[2], int) else 2
    order = _order(found)
    if order is None:
        return f"{found.moved.name} is not {found.x.name} with its elements moved"
    source, sign = order
    orders = {0: np.roll(np.arange(width), width // 2), 1: np.arange(width) ^ 1}
    interleaved = next((kind for kind, wanted in orders.items() if np.array_equal(source, wanted)), None)
    if interleaved is None:
        return f"{found.moved.name} moves elements neither by half a head nor in pairs"
    is_first = source > np.arange(width)  # of each pair that turns together
    if not np.array_equal(np.where(is_first, -sign, sign), np.full(width, sign[-1])):
        return f"{found.moved.name} does not turn its pairs one way"
    for table in (found.cos, found.sin):
        fault = _table_fault(found, table, rows_axis, source)
        if fault is not None:
            return fault
    return Rotation(found.total, found.x, found.cos, found.sin, width, interleaved, bool(sign[-1] < 0), rows_axis)


def _order(found: Candidate) -> tuple[np.ndarray, np.ndarray] | None:
    """Where each element of `moved` comes from in its head, and its sign; None if it is no such move."""
    assert found.x.shape is not None
    shape = [size if isinstance(size, int) else PROBED_ROWS for size in found.x.shape]
    numbers = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)  # exact: a few thousand at most
    moved = _run(found.total, found.x, found.moved, numbers)
    if moved is None or moved.shape != numbers.shape:
        return None
    source = np.abs(moved) - numbers[..., :1]
    sign = np.sign(moved)
    if (source != source[0, 0, 0]).any() or (sign != sign[0, 0, 0]).any():
        return None
    return source[0, 0, 0].astype(np.int64), sign[0, 0, 0].astype(np.int64)


def _table_fault(found: Candidate, table: ir.Value, rows_axis: int, source: np.ndarray) -> str | None:
    """Why `table` is no table of angles by position, or None."""
    assert found.total.graph is not None
    positions = next((value for value in found.total.graph.inputs if value.name == contract.POSITIONS), None)
    numbers = None if positions is None else _run(found.total, positions, table, PROBED_POSITIONS)
    if numbers is None:
        return f"{table.name} depends on more than positions"
    wanted = [1, 1, 1, len(source)]
    wanted[rows_axis] = len(PROBED_POSITIONS)
    if list(numbers.shape) != wanted:
        return f"{table.name} has other axes than rows and angles"
    return None if np.array_equal(numbers, numbers[..., source]) else f"{table.name} has unlike columns in a pair"


def _run(place: ir.Node, source: ir.Value, result: ir.Value, numbers: np.ndarray) -> np.ndarray | None:
    """`result` for these numbers in `source`; None if it depends on anything else."""
    assert place.graph is not None
    try:
        graph = ir.convenience.extract(place.graph, [source], [result])
    except ValueError:  # another graph input is needed
        return None
    (given,), (wanted,) = graph.inputs, graph.outputs
    given.shape = ir.Shape(numbers.shape)
    given.name, wanted.name = "given", "wanted"
    graph.opset_imports[""] = contract.OPSET_VERSION
    return run_graph(ir.Model(graph, ir_version=10), {"given": numbers})["wanted"]


def _whole_head(rotation: Rotation) -> Rotation:
    """The rotation of a head's first part, with the part behind it put back, as a rotation of the whole head."""
    cut = rotation.x.producer()
    part = part_of(cut) if cut is not None else None
    users = rotation.total.outputs[0].consumers()
    if part is None or part.start != 0 or len(users) != 1 or users[0].op_type != "Concat" or len(users[0].inputs) != 2:
        return rotation
    joined = users[0]
    head = part.node.inputs[0]
    behind = joined.inputs[1].producer() if joined.inputs[1] is not None else None
    rest = part_of(behind) if behind is not None else None
    assert head is not None
    assert head.shape is not None
    if joined.outputs[0].is_graph_output():
        return rotation
    is_whole = rest is not None and rest.node.inputs[0] is head and (rest.start, rest.end) == (part.end, head.shape[-1])
    if not is_whole or joined.inputs[0] is not rotation.total.outputs[0]:
        return rotation
    if joined.attributes.get_int("axis", 0) not in (-1, 3):
        return rotation
    return Rotation(
        joined,
        head,
        rotation.cos,
        rotation.sin,
        rotation.rotary_dim,
        rotation.interleaved,
        rotation.is_backward,
        rotation.rows_axis,
    )


def _rewrite(graph: ir.Graph, rotation: Rotation) -> None:
    old = rotation.total.outputs[0]
    assert rotation.x.shape is not None
    heads_first = rotation.rows_axis == 2
    shape = list(rotation.x.shape)
    x = rotation.x
    if not heads_first:
        shape = [shape[axis] for axis in SWAPPED]
        x = _add(graph, rotation, "heads_first", "Transpose", [x], shape, perm=SWAPPED)
    attributes = {"interleaved": rotation.interleaved, "num_heads": int(shape[1])}  # type: ignore[arg-type]
    if rotation.rotary_dim != shape[3]:
        attributes["rotary_embedding_dim"] = rotation.rotary_dim
    tables = [_half(graph, rotation, rotation.cos), _half(graph, rotation, rotation.sin)]
    if rotation.is_backward:
        tables[1] = _add(graph, rotation, "backward", "Neg", [tables[1]], tables[1].shape)
    y = _add(graph, rotation, "rotated", "RotaryEmbedding", [x, *tables], shape, **attributes)
    if not heads_first:
        y = _add(graph, rotation, "rows_first", "Transpose", [y], old.shape, perm=SWAPPED)
    old.replace_all_uses_with(y)


def _half(graph: ir.Graph, rotation: Rotation, table: ir.Value) -> ir.Value:
    """[1, T, width / 2]: one column a pair."""
    half = rotation.rotary_dim // 2
    end, step = (LAST, 2) if rotation.interleaved else (half, 1)
    assert table.shape is not None
    bounds = [int64_constant(graph, [number]) for number in (0, end, 3, step)]
    columns = _add(graph, rotation, f"{table.name}/half", "Slice", [table, *bounds], [*table.shape[:3], half])
    rows = rotation.x.shape[rotation.rows_axis]  # type: ignore[index]
    shape = int64_constant(graph, [1, -1, half])
    return _add(graph, rotation, f"{table.name}/rows", "Reshape", [columns, shape], [1, rows, half])


def _add(
    graph: ir.Graph,
    rotation: Rotation,
    name: str,
    op_type: str,
    inputs: list[ir.Value],
    shape: "ir.Shape | list[int | ir.SymbolicDim] | None",
    **attributes: object,
) -> ir.Value:
    """A node in front of what is replaced; float32 as all of a graph is here."""
    output = ir.Value(
        name=f"{rotation.total.outputs[0].name}/{name}",
        type=ir.TensorType(ir.DataType.FLOAT),
        shape=None if shape is None else ir.Shape(shape),
    )
    graph.insert_before(rotation.total, ir.node(op_type, inputs, attributes, outputs=[output]))  # type: ignore[arg-type]
    return output
