"""bfloat16 weights in 12 bits: exponents become numbers of a table, and the engine reads a quarter less a step.

In: a lowered graph with LinearBf16 and GatedLinearBf16. Out: LinearBf16Coded and its gated form, whose weights decode
to the same bits: no result changes. Coding while lowering was the alternative and lost: two decisions in one pass, and
whoever looks for a wrong weight wants the packed one before it is coded.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ..plugins.contract import DOMAIN
from ..plugins.linear import coded
from ..plugins.linear.schema import FORMATS
from .base import Fusion, run_fusion
from .sliced_tensor import SLICE_ELEMENTS
from .target import Target
from .weights import constant_of, derive, derive_sliced, read_slice, registered

__all__ = ["code_weights"]

CODED = {
    FORMATS["bf16"].op_type: FORMATS["bf16_coded"].op_type,
    FORMATS["bf16"].gated_op_type: FORMATS["bf16_coded"].gated_op_type,
}
MOST_ESCAPES = 1 / 64  # of the weights: an escape takes 10 bytes and a store of its own, a coded weight saves 4 bits


@dataclass(frozen=True)
class Plan:
    """One layer, the table of its exponents, and the weights that are not in it."""

    node: ir.Node
    weight: ir.Value
    exponents: np.ndarray
    escapes: coded.Escapes


def code_weights(model: ir.Model, target: Target) -> int:
    """Replace every bfloat16 layer by one with coded weights; returns how many.

    before:  LinearBf16(x, W, b)               (or GatedLinearBf16)
    after:   LinearBf16Coded(x, codes, exponents, escape places, escape values, b)

    Kept untouched: matrices in which more than one weight in 64 has an exponent beside the 16 most frequent.
    Source: plugins/linear/coded.h.
    """
    return run_fusion(model, target, Fusion(_pattern, _check, _rewrite))


def _pattern(node: ir.Node) -> ir.Node | None:
    return node if node.domain == DOMAIN and node.op_type in CODED else None


def _check(node: ir.Node, target: Target) -> Plan | str:
    del target  # no result changes, so there is nothing to choose
    weight = node.inputs[1]
    if weight is None or constant_of(weight) is None:
        return f"the weight of {node.outputs[0].name} is no constant"
    counts = sum((coded.count_exponents(panels) for _, panels in _slices(weight)), np.zeros(256, np.int64))
    exponents = coded.choose_exponents(counts)
    share = 1 - counts[exponents].sum() / counts.sum()
    if share > MOST_ESCAPES:
        return f"{share:.1%} of {weight.name} have another exponent than the 16 most frequent"
    found = (coded.find_escapes(panels, exponents, first) for first, panels in _slices(weight))
    return Plan(node, weight, exponents, coded.joined(found))


def _slices(weight: ir.Value) -> Iterator[tuple[int, np.ndarray]]:
    """Some panels at a time, and the number of the first."""
    assert weight.shape is not None
    panels, *rest = (int(size) for size in weight.shape.numpy())
    step = max(1, SLICE_ELEMENTS // int(np.prod(rest)))
    for first in range(0, panels, step):
        yield first, read_slice(weight, 0, first, min(first + step, panels))


def _rewrite(graph: ir.Graph, plan: Plan) -> None:
    node = plan.node
    attributes = [ir.AttrInt64(name, value.as_int()) for name, value in node.attributes.items()]
    inputs = [node.inputs[0], *_initializers(graph, plan), *node.inputs[2:]]
    old = node.outputs[0]
    new = ir.Value(name=old.name, type=old.type, shape=old.shape)
    graph.insert_before(node, ir.Node(DOMAIN, CODED[node.op_type], inputs, attributes, outputs=[new]))
    old.replace_all_uses_with(new, replace_graph_outputs=True)


def _initializers(graph: ir.Graph, plan: Plan) -> list[ir.Value]:
    """Codes, computed when somebody writes them; table and escapes, which are small."""
    weight, exponents = plan.weight, plan.exponents
    assert weight.shape is not None
    panels, words, *_ = (int(size) for size in weight.shape.numpy())
    codes = derive_sliced(
        f"{weight.name}/codes",
        ir.DataType.UINT8,
        (panels, words // coded.GROUP_WORDS, coded.GROUP_BYTES),
        lambda first, stop: coded.code(read_slice(weight, 0, first, stop), exponents),
    )
    count = (len(plan.escapes.places),)
    small = [
        derive(f"{weight.name}/exponents", ir.DataType.UINT8, (len(exponents),), lambda: exponents),
        derive(f"{weight.name}/escape_places", ir.DataType.INT64, count, lambda: plan.escapes.places),
        derive(f"{weight.name}/escape_values", ir.DataType.BFLOAT16, count, lambda: plan.escapes.values),
    ]
    return [registered(graph, one) for one in (codes, *small)]
