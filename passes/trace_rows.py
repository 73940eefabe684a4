"""Which operators treat rows one by one: the table behind `select_logit_rows` and behind the exporter's last check.

A node and the axis on which its output holds the rows (one row a token) flow in; the inputs that hold the same rows,
each with its axis, flow out, or None where the node mixes rows or is not in the table. Asking shape inference was the
alternative and lost: shapes say that an axis survived, not that its entries stayed apart.
"""

from collections.abc import Callable, Mapping

import onnx_ir as ir

from ..plugins.contract import DOMAIN
from .weights import small_constant

__all__ = ["ELEMENTWISE", "REDUCTIONS", "ROW_OPS", "row_inputs"]

RowInputs = tuple[tuple[int, int], ...]  # (place of the input, axis of the rows in it)

ARITHMETIC = ("Abs", "Add", "Cast", "Clip", "Div", "Identity", "Max", "Min", "Mod", "Mul", "Neg", "Pow", "Sign", "Sub")
ROUNDINGS = ("Ceil", "Floor", "Round")
FUNCTIONS = ("Cos", "Erf", "Exp", "Log", "Reciprocal", "Sin", "Sqrt", "Tanh")
LOGIC = ("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or", "Where")
ACTIVATIONS = ("Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Relu", "Sigmoid", "Softplus", "Swish")
ELEMENTWISE = (*ARITHMETIC, *ROUNDINGS, *FUNCTIONS, *LOGIC, *ACTIVATIONS)
NORMS = ("LayerNormalization", "LogSoftmax", "LpNormalization", "RMSNormalization", "Softmax")
REDUCTIONS = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare", "ReduceL2")
ROW_OPS = (
    "LinearBf16",
    "LinearF32",
    "LinearInt8",
    "LinearInt8Rows16",
    "ResidualNorm",
    "SwiGLU",
)  # ours: the last axis is the features


def row_inputs(node: ir.Node, axis: int) -> RowInputs | None:
    """Inputs of `node` whose rows lie one to one behind the rows on `axis` (>= 0) of its outputs; None if rows mix.

    Inputs without rows (weights, shapes, things that are broadcast over rows) are not in the answer.
    """
    rule = RULES.get((node.domain, node.op_type))
    return None if rule is None or node.outputs[0].shape is None else rule(node, axis)


def _elementwise(node: ir.Node, axis: int) -> RowInputs | None:
    """numpy broadcasting: axes are aligned at the end, and an axis of 1 holds no rows of its own."""
    rank = _rank(node.outputs[0])
    found = []
    for place, value in enumerate(node.inputs):
        if value is None or _no_rows(value):
            continue
        if value.shape is None:
            return None
        own_axis = axis - (rank - len(value.shape))
        if own_axis >= 0 and value.shape[own_axis] != 1:
            found.append((place, own_axis))
    return tuple(found)


def _all_alike(node: ir.Node, axis: int) -> RowInputs | None:
    """Every computed input has its rows where the output has them; the last axis is not theirs."""
    if axis == _rank(node.outputs[0]) - 1:
        return None
    return tuple((place, axis) for place, value in enumerate(node.inputs) if value is not None and not _no_rows(value))


def _matmul(node: ir.Node, axis: int) -> RowInputs | None:
    left, right = node.inputs
    assert left is not None
    assert right is not None
    same_rank = left.shape is not None and len(left.shape) == _rank(node.outputs[0])
    return ((0, axis),) if same_rank and _no_rows(right) and axis < _rank(node.outputs[0]) - 1 else None


def _gemm(node: ir.Node, axis: int) -> RowInputs | None:
    others = [value for value in node.inputs[1:] if value is not None]
    apart = axis == 0 and not node.attributes.get_int("transA", 0) and all(_no_rows(value) for value in others)
    return ((0, 0),) if apart else None


def _expand(node: ir.Node, axis: int) -> RowInputs | None:
    """Rows pass where the input has them already; where they come from the shape alone, nothing is known of them."""
    source = node.inputs[0]
    if source is None or source.shape is None:
        return None
    own_axis = axis - (_rank(node.outputs[0]) - len(source.shape))
    return ((0, own_axis),) if own_axis >= 0 and source.shape[own_axis] != 1 else None


def _over_last_axes(node: ir.Node, axis: int) -> RowInputs | None:
    rank = _rank(node.outputs[0])
    first = node.attributes.get_int("axis", -1) % rank
    return ((0, axis),) if axis < first else None


def _over_named_axes(node: ir.Node, axis: int) -> RowInputs | None:
    """Reductions that keep their axes, none of which holds rows."""
    axes = small_constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if axes is None or node.attributes.get_int("keepdims", 1) != 1:
        return None
    return ((0, axis),) if axis not in {int(a) % _rank(node.outputs[0]) for a in axes} else None


def _along_another_axis(node: ir.Node, axis: int) -> RowInputs | None:
    """Split and Concat: rows pass through if it is another axis that is cut or joined."""
    if node.attributes.get_int("axis", 0) % _rank(node.outputs[0]) == axis:
        return None
    return ((0, axis),) if node.op_type == "Split" else _elementwise(node, axis)


def _slice(node: ir.Node, axis: int) -> RowInputs | None:
    axes = small_constant(node.inputs[3]) if len(node.inputs) > 3 else None
    return None if axes is None or axis in {int(a) % _rank(node.outputs[0]) for a in axes} else ((0, axis),)


def _squeeze(node: ir.Node, axis: int) -> RowInputs | None:
    """Axes that are gone from in front of the rows move them back."""
    axes = small_constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if axes is None or node.inputs[0] is None or node.inputs[0].shape is None:
        return None
    gone = {int(a) % len(node.inputs[0].shape) for a in axes}
    kept = [a for a in range(len(node.inputs[0].shape)) if a not in gone]
    return ((0, kept[axis]),)


def _unsqueeze(node: ir.Node, axis: int) -> RowInputs | None:
    axes = small_constant(node.inputs[1])
    if axes is None:
        return None
    new = {int(a) % _rank(node.outputs[0]) for a in axes}
    return None if axis in new else ((0, axis - sum(a < axis for a in new)),)


def _transpose(node: ir.Node, axis: int) -> RowInputs | None:
    rank = _rank(node.outputs[0])
    return ((0, int(node.attributes.get_ints("perm", list(reversed(range(rank))))[axis])),)


def _reshape(node: ir.Node, axis: int) -> RowInputs | None:
    """Rows pass if the axis stays whole: as many elements before it in both shapes, and the same name or size."""
    before, after = node.inputs[0].shape if node.inputs[0] else None, node.outputs[0].shape
    if before is None or after is None:
        return None
    for own_axis, size in enumerate(before):
        if size == after[axis] and _product(before[:own_axis]) == _product(after[:axis]) is not None:
            return ((0, own_axis),)
    return None


def _gather(node: ir.Node, axis: int) -> RowInputs | None:
    """A look-up by row in a table without rows: the rows are those of the indices. Or constant entries of rows."""
    data, indices = node.inputs
    assert data is not None
    assert indices is not None
    if data.shape is None or indices.shape is None:
        return None
    gathered, width = node.attributes.get_int("axis", 0) % len(data.shape), len(indices.shape)
    if _no_rows(data):
        return ((1, axis),) if gathered == 0 and axis < width else None
    if not _no_rows(indices) or gathered <= axis < gathered + width:
        return None
    return ((0, axis if axis < gathered else axis - width + 1),)


RULES: Mapping[tuple[str, str], Callable[[ir.Node, int], RowInputs | None]] = {
    **{("", op_type): _elementwise for op_type in ELEMENTWISE},
    **{("", op_type): _over_last_axes for op_type in NORMS},
    **{("", op_type): _over_named_axes for op_type in REDUCTIONS},
    **{(DOMAIN, op_type): _all_alike for op_type in ROW_OPS},
    ("", "Concat"): _along_another_axis,
    ("", "Expand"): _expand,
    ("", "Gather"): _gather,
    ("", "Gemm"): _gemm,
    ("", "MatMul"): _matmul,
    ("", "Reshape"): _reshape,
    ("", "Slice"): _slice,
    ("", "Split"): _along_another_axis,
    ("", "Squeeze"): _squeeze,
    ("", "Transpose"): _transpose,
    ("", "Unsqueeze"): _unsqueeze,
}


def _rank(value: ir.Value) -> int:
    assert value.shape is not None
    return len(value.shape)


def _no_rows(value: ir.Value) -> bool:
    """Whether `value` is a constant or computed from constants only: a weight, perhaps transposed."""
    if value.is_graph_input():
        return False
    node = value.producer()
    if node is None:
        return value.const_value is not None
    return all(source is None or _no_rows(source) for source in node.inputs)


def _product(sizes: tuple[int | ir.SymbolicDim, ...]) -> int | None:
    """The number of elements, or None if a size is not known."""
    product = 1
    for size in sizes:
        if not isinstance(size, int):
            return None
        product *= size
    return product
