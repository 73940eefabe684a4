"""Passes that come with onnx_ir and onnxscript, in our form: constants, no-ops, identities, dead code, notes.

A graph flows in; the same computation with fewer nodes flows out. Each pass is a thin wrapper, because the libraries
answer with result objects and our runner wants a count of rewrites. Writing them anew was the alternative and lost;
so did onnxscript's ready-made `optimize`, which transposes weight matrices in memory.
"""

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript.optimizer import fold_constants_ir
from onnxscript.rewriter import RewriteRule, RewriteRuleSet
from onnxscript.rewriter.rules import common as rules

from .base import remove_dead_nodes
from .target import Target
from .weights import SMALL_ELEMENTS, small_constant

__all__ = ["clear_notes", "fold_constants", "lift_constants", "remove_dead_code", "remove_no_ops", "strip_notes"]


def _rows_of_a_table(op: Any, table: Any, ids: Any) -> Any:
    """What indexing a buffer with a tensor becomes."""
    return op.GatherND(table, op.Unsqueeze(ids, [-1]), batch_dims=0)


def _gathered_rows(op: Any, table: ir.Value, ids: ir.Value) -> Any:
    return op.Gather(table, ids, axis=0)


def _with_constant(op_type: str) -> Callable[..., Any]:
    def pattern(op: Any, x: Any, number: Any) -> Any:
        return getattr(op, op_type)(x, number)

    return pattern


def _is_exactly(neutral: float) -> Callable[..., bool]:
    """Whether a constant is this number in every bit: the library's own rules take 1e-8, a norm's epsilon, for 0."""

    def check(context: Any, x: ir.Value, number: ir.Value, **_: Any) -> bool:
        constant = small_constant(number)
        if constant is None or constant.size != 1 or x.shape is None or constant.ndim > len(x.shape):
            return False
        return bool(constant.item() == neutral)

    return check


def _unchanged(op: Any, x: ir.Value, **_: Any) -> Any:
    return op.Identity(x)


def _neutral(op_type: str, neutral: float) -> RewriteRule:
    return RewriteRule(_with_constant(op_type), _unchanged, _is_exactly(neutral), name=f"{op_type}{neutral:g}")


NO_OPS = RewriteRuleSet(
    [
        *_neutral("Mul", 1).commute(),
        *_neutral("Add", 0).commute(),
        _neutral("Div", 1),
        _neutral("Sub", 0),
        rules.no_op_cast_rule,
        rules.no_op_expand_rule,
        rules.collapse_slice_rule,
        rules.unsqueeze_unsqueeze_rule,
        rules.materialize_reshape_shape_rule,
        rules.no_op_transpose_rule,
        RewriteRule(_rows_of_a_table, _gathered_rows),
    ]
)


def fold_constants(model: ir.Model, target: Target) -> int:
    """Compute now what depends on small constants only, and infer types on the way; returns the nodes saved.

    Kept untouched: whatever reads a weight matrix (floating point, two axes or more), however small, and constants of
    more than `SMALL_ELEMENTS` elements: folding must not read a checkpoint.
    """
    del target
    before = len(model.graph)
    fold_constants_ir(
        model,
        onnx_shape_inference=True,
        input_size_limit=SMALL_ELEMENTS,
        output_size_limit=SMALL_ELEMENTS,
        should_fold=_no_if_matrix,
    )
    remove_dead_nodes(model)
    return before - len(model.graph)


def _no_if_matrix(node: ir.Node) -> bool | None:
    """False where a weight matrix would be read; None leaves it to the limits."""
    for value in node.inputs:
        if value is not None and value.is_initializer() and value.dtype is not None and value.dtype.is_floating_point():
            tensor = value.const_value
            if tensor is not None and len(tensor.shape) > 1:
                return False
    return None


def remove_no_ops(model: ir.Model, target: Target) -> int:
    """Remove what changes nothing, and settle shapes that are known; returns the number of places.

    before:  Mul(x, 1)   Add(x, 0)   Cast(x, to=its own type)   Slice(x, everything)
             Expand(x, its own shape)   Transpose(x, in order)
    after:   x
    before:  Unsqueeze(Unsqueeze(x))                                after:  Unsqueeze(x)
    before:  Reshape(x, computed), at most one axis unknown         after:  Reshape(x, constant with -1)
    before:  GatherND(table, Unsqueeze(ids, [-1]))                  after:  Gather(table, ids)

    Kept untouched: the same operators where they do change something. Source: onnxscript.rewriter.rules.common.
    """
    del target
    before = len(model.graph)
    common.IdentityEliminationPass()(model)
    count = before - len(model.graph) + int(NO_OPS.apply_to_model(model))
    common.IdentityEliminationPass()(model)  # the rules leave an Identity in the place of what they remove
    remove_dead_nodes(model)
    return count


def lift_constants(model: ir.Model, target: Target) -> int:
    """Constant nodes become initializers, so that there is one place to look; returns how many."""
    del target
    before = len(model.graph)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    return before - len(model.graph)


def remove_dead_code(model: ir.Model, target: Target) -> int:
    """Remove nodes and initializers that no output needs; returns how many."""
    del target
    return remove_dead_nodes(model)


def clear_notes(model: ir.Model, target: Target) -> int:
    """Drop what exporters note on nodes and values; returns on how many of them."""
    del target
    return strip_notes(model)


def strip_notes(model: ir.Model) -> int:
    """Drop metadata and doc strings (source lines, scopes) of model, graph, nodes and values; returns how many had any.

    They hold paths of the machine that exported, so that equal models would not be equal bytes.
    """
    graph = model.graph
    values = [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]
    count = 0
    for item in (model, graph, *graph, *values):
        count += bool(item.metadata_props or item.doc_string)
        item.metadata_props.clear()
        item.doc_string = None
    return count
