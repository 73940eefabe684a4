"""The residual sum and the norm behind it as one op: the sum is normalized while it is still in registers.

In: `RMSNormalization(Add(x, residual), w)`. Out: `paceline::ResidualNorm` with both results, the normalized rows and
the sum, which the next residual reads. The first norm of a graph has no sum before it and stays as it is.
"""

from dataclasses import dataclass

import onnx_ir as ir

from ..plugins.contract import DOMAIN
from .base import Fusion, run_fusion
from .target import Target
from .weights import constant_of, value_like

__all__ = ["fuse_residual_norm"]


@dataclass(frozen=True)
class SumAndNorm:
    """A norm and the sum it normalizes."""

    add: ir.Node
    norm: ir.Node


def fuse_residual_norm(model: ir.Model, target: Target) -> int:
    """Replace every residual sum that is normalized over its last axis; returns how many.

    before:  total = Add(x, residual);  y = RMSNormalization(total, w, axis=-1);  total is used further on, or not
    after:   y, total = ResidualNorm(x, residual, w, epsilon=)

    Kept untouched: sums of unequal shapes; a norm over several axes, or in another type than float32, or with a
    computed weight; norms of something else than a sum. Of two norms of one sum the first is fused.
    Source: https://onnx.ai/onnx/operators/onnx__RMSNormalization.html; plugins/residual_norm for the op.
    """
    return run_fusion(model, target, Fusion(_pattern, _check, _rewrite))


def _pattern(node: ir.Node) -> SumAndNorm | None:
    if node.domain != "" or node.op_type != "RMSNormalization" or node.inputs[0] is None:
        return None
    add = node.inputs[0].producer()
    return SumAndNorm(add, node) if add is not None and add.domain == "" and add.op_type == "Add" else None


def _check(found: SumAndNorm, target: Target) -> SumAndNorm | str:
    del target  # every target has a kernel or runs the meaning
    add, norm = found.add, found.norm
    x, residual = add.inputs
    assert x is not None
    assert residual is not None
    if x.shape is None or residual.shape is None or x.shape.dims != residual.shape.dims:
        return f"{x.name} {x.shape} and {residual.name} {residual.shape} are not known to have one shape"
    if add.outputs[0].is_graph_output() or norm.outputs[0].is_graph_output():
        return "the sum or the norm is a graph output"
    return _norm_fault(norm, x.shape) or found


def _norm_fault(norm: ir.Node, shape: ir.Shape) -> str | None:
    """Why ResidualNorm cannot do this norm of a value of `shape`, or None if it can."""
    if norm.attributes.get_int("axis", -1) not in (-1, len(shape) - 1):
        return f"{norm.outputs[0].name} is normalized over more than the last axis"
    if norm.attributes.get_int("stash_type", ir.DataType.FLOAT) != ir.DataType.FLOAT:
        return f"{norm.outputs[0].name} is not computed in float32"
    scale = norm.inputs[1]
    weight = constant_of(scale)
    if scale is None or weight is None or scale.producer() is not None:
        return f"the weight of {norm.outputs[0].name} is no initializer"
    if list(weight.shape) != [shape[-1]] or weight.dtype != ir.DataType.FLOAT:
        return f"the weight {scale.name} is {weight.dtype} {weight.shape}, not FLOAT [{shape[-1]}]"
    return None


def _rewrite(graph: ir.Graph, found: SumAndNorm) -> None:
    add, norm = found.add, found.norm
    outputs = [value_like(old, str(old.name)) for old in (norm.outputs[0], add.outputs[0])]
    attributes = {"epsilon": norm.attributes.get_float("epsilon", 1e-5)}
    inputs = [*add.inputs, norm.inputs[1]]
    fused = ir.node("ResidualNorm", inputs, attributes, domain=DOMAIN, outputs=outputs)
    graph.insert_after(add, fused)  # all users of the sum and of the norm come later
    norm.outputs[0].replace_all_uses_with(outputs[0])
    add.outputs[0].replace_all_uses_with(outputs[1])
