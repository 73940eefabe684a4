"""Transposes and Reshapes that undo each other, removed.

In: a graph in which a fusion has taken away what stood between two changes of layout. Out: the projections' rows reach
the attention op as they lie in memory. onnxscript has rules for direct pairs; they lost because the norm of q and k
(qk-norm) may stand between the two Transposes, and because the row count T is not known here.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from .base import Fusion, run_fusion
from .target import Target
from .weights import small_constant, value_like

__all__ = ["simplify_layout"]


@dataclass(frozen=True)
class TransposePair:
    """Transpose, then `norms` over the last axis (perhaps none), then the inverse Transpose."""

    first: ir.Node
    norms: tuple[ir.Node, ...]
    last: ir.Node


@dataclass(frozen=True)
class ReshapeChain:
    """A Reshape and where its elements come from through earlier Reshapes."""

    origin: ir.Value
    reshape: ir.Node


def simplify_layout(model: ir.Model, target: Target) -> int:
    """Remove Transposes that cancel and Reshapes that change nothing, or only what a later one changes again.

    before:  Transpose(Transpose(x))                                     after:  x
    before:  Transpose(RMSNormalization(Transpose(x), w, axis=-1))       after:  RMSNormalization(x, w, axis=-1)
    before:  Reshape(Reshape(x, s1), s2)                                 after:  Reshape(x, s2)
    before:  Reshape(x, s) where x has shape s                           after:  x

    Kept untouched: permutations that do not cancel or move the normalized axis; shapes that are computed; a target
    shape with a 0 (it would copy an axis of another input); results that are graph outputs.
    Source: https://onnx.ai/onnx/operators/onnx__Transpose.html, https://onnx.ai/onnx/operators/onnx__Reshape.html
    """
    transposes = run_fusion(model, target, Fusion(_find_transposes, _check_transposes, _cancel_transposes))
    return transposes + run_fusion(model, target, Fusion(_find_reshapes, _check_reshapes, _shorten_reshapes))


def _find_transposes(node: ir.Node) -> TransposePair | None:
    if not _is(node, "Transpose"):
        return None
    norms: list[ir.Node] = []
    above = _maker(node)
    while above is not None and _is(above, "RMSNormalization"):
        norms.insert(0, above)
        above = _maker(above)
    return TransposePair(above, tuple(norms), node) if above is not None and _is(above, "Transpose") else None


def _check_transposes(pair: TransposePair, target: Target) -> TransposePair | str:
    del target  # moving data for nothing is slow everywhere
    first = pair.first.attributes.get_ints("perm", ())
    last = pair.last.attributes.get_ints("perm", ())
    rank = len(first)
    if [first[axis] for axis in last] != list(range(rank)) or rank == 0:
        return f"{list(first)} and {list(last)} do not cancel"
    if pair.norms and first[-1] != rank - 1:
        return f"{list(first)} moves the axis that is normalized"
    for norm in pair.norms:
        if norm.attributes.get_int("axis", -1) not in (-1, rank - 1):
            return f"{norm.outputs[0].name} is normalized over more than the last axis"
    return "the result is a graph output" if pair.last.outputs[0].is_graph_output() else pair


def _cancel_transposes(graph: ir.Graph, pair: TransposePair) -> None:
    source = pair.first.inputs[0]
    assert source is not None
    for norm in pair.norms:
        output = value_like(source, f"{norm.outputs[0].name}/rows_first")
        graph.insert_before(
            pair.last, ir.node(norm.op_type, [source, *norm.inputs[1:]], norm.attributes, outputs=[output])
        )
        source = output
    pair.last.outputs[0].replace_all_uses_with(source)


def _find_reshapes(node: ir.Node) -> ReshapeChain | None:
    if not _is(node, "Reshape"):
        return None
    origin = node.inputs[0]
    assert origin is not None
    chain = ReshapeChain(origin, node)
    while (above := origin.producer()) is not None and _is(above, "Reshape"):
        origin = above.inputs[0]
        assert origin is not None
        chain = ReshapeChain(origin, node)
    changes_nothing = _has_shape(origin, small_constant(node.inputs[1]))
    return chain if changes_nothing or origin is not node.inputs[0] else None


def _check_reshapes(chain: ReshapeChain, target: Target) -> ReshapeChain | str:
    del target  # as above
    shape = small_constant(chain.reshape.inputs[1])
    if shape is None:
        return f"the shape {chain.reshape.inputs[1].name} is computed"  # type: ignore[union-attr]
    if 0 in shape:
        return f"the shape {shape.tolist()} copies an axis of its input"
    return "the result is a graph output" if chain.reshape.outputs[0].is_graph_output() else chain


def _shorten_reshapes(graph: ir.Graph, chain: ReshapeChain) -> None:
    if _has_shape(chain.origin, small_constant(chain.reshape.inputs[1])):
        chain.reshape.outputs[0].replace_all_uses_with(chain.origin)
    else:
        chain.reshape.replace_input_with(0, chain.origin)


def _has_shape(value: ir.Value, shape: np.ndarray | None) -> bool:
    """Whether `value` has this target shape already; one axis may be -1, and is then settled by the others."""
    if value.shape is None or shape is None or len(value.shape) != len(shape):
        return False
    return all(wanted in (-1, found) for wanted, found in zip(shape, value.shape, strict=True))


def _is(node: ir.Node, op_type: str) -> bool:
    return node.domain == "" and node.op_type == op_type


def _maker(node: ir.Node) -> ir.Node | None:
    """The node that makes the first input."""
    value = node.inputs[0]
    return value.producer() if value is not None else None
