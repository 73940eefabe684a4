"""The three projections in front of an attention node, made one MatMul.

In: Attention whose q, k and v come from three linear layers over the same rows. Out: one wide linear layer and a Split.
One wide product reads the rows once and fills the cores better than three narrow ones. Finding the projections by
weight names was the alternative and lost: names differ between checkpoints, the edges of the graph do not.
"""

import onnx_ir as ir

from ..plugins.contract import DOMAIN
from .base import Fusion, run_fusion
from .linears import Linear
from .merge_linears import merge_linears, mergeable_linears
from .target import Target

__all__ = ["merge_qkv"]

KEEP_ROWS_APART = frozenset(  # what may stand between the projections and the attention
    {"Identity", "LayerNormalization", "RMSNormalization", "Reshape", "RotaryEmbedding", "Transpose"}
)


def merge_qkv(model: ir.Model, target: Target) -> int:
    """Merge the q, k and v projections of every attention; returns how many attentions.

    before:  Attention(q(MatMul(x, wq) [+ bq]), k(MatMul(x, wk) [+ bk]), MatMul(x, wv) [+ bv])
    after:   a, b, c = Split(MatMul(x, wq|wk|wv) [+ bq|bk|bv], axis=-1);  Attention(q(a), k(b), c)

    q() and k() may change the layout, normalize (qk-norm) and rotate. The merged weight is computed when it is read.
    Kept untouched: projections of different inputs; some with and some without bias; already merged ones (checkpoints
    that store one qkv matrix); weights that are computed.
    Source: https://onnx.ai/onnx/operators/onnx__MatMul.html, https://onnx.ai/onnx/operators/onnx__Split.html
    """
    return run_fusion(model, target, Fusion(_pattern, _check, merge_linears))


def _pattern(node: ir.Node) -> dict[str, ir.Value] | None:
    """What the projections give to q, k and v."""
    if node.domain != DOMAIN or node.op_type not in ("Attention", "PagedAttention"):
        return None
    return {role: _before_layout(value) for role, value in zip("qkv", node.inputs, strict=False) if value is not None}


def _before_layout(value: ir.Value) -> ir.Value:
    node = value.producer()
    while node is not None and node.domain == "" and node.op_type in KEEP_ROWS_APART and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value


def _check(values: dict[str, ir.Value], target: Target) -> list[Linear] | str:
    del target  # one wide product is no slower anywhere
    return mergeable_linears(values)
