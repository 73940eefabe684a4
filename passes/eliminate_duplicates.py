"""Equal computations done once: the cos and sin that each layer takes anew of the same angles, and the like.

In: a graph as exported. Out: the same graph in which no two nodes have equal operator, inputs and attributes, and no
two small constants equal bytes. onnx_ir's passes do the work; this file runs them in the order that lets the second see
the first's result, and counts.
"""

import onnx_ir as ir
from onnx_ir.passes.common import CommonSubexpressionEliminationPass, DeduplicateInitializersPass

from .target import Target

__all__ = ["eliminate_duplicates"]

SMALL_ELEMENTS = 256  # shapes, axes, scalars, inverse frequencies; reading more would pull weights from the disk


def eliminate_duplicates(model: ir.Model, target: Target) -> int:
    """Merge equal small initializers, then equal nodes; returns how many of both are gone.

    before:  c1 = Cos(angles)   c2 = Cos(angles)   f(c1)   f(c2)
    after:   c1 = Cos(angles)                      f(c1)

    Kept untouched: random operators, nodes with subgraphs, initializers of more than 256 elements.
    Source: onnx_ir.passes.common, CommonSubexpressionEliminationPass and DeduplicateInitializersPass.
    """
    del target  # a duplicate is one anywhere
    before = _size(model)
    DeduplicateInitializersPass(size_limit=SMALL_ELEMENTS)(model)
    CommonSubexpressionEliminationPass()(model)
    return before - _size(model)


def _size(model: ir.Model) -> int:
    return len(model.graph) + len(model.graph.initializers)
