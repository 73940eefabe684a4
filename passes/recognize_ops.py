"""Standard operators put back where an exporter spelled them out in small ones.

In: a graph in which a normalization or a rotation may still be Pow, ReduceMean, Slice, Neg, Concat and so on.
Out: RMSNormalization and RotaryEmbedding nodes of opset 23, so that the fusions behind this pass see one form only.
Most rules are onnxscript's; ours adds the rotation with a scaled table. Matching the small operators in each fusion
was the alternative and lost: every fusion would have had to know every exporter's spelling.
"""

from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass
from onnxscript.rewriter.pattern import MatchResult, RewriteRule, RewriteRuleSet
from onnxscript.rewriter.rules.fusion import _rms_normalization, _rotary_embedding

from .base import remove_dead_nodes
from .target import Target
from .weights import small_constant

__all__ = ["recognize_ops"]


def recognize_ops(model: ir.Model, target: Target) -> int:
    """Replace decomposed RMSNormalization and RotaryEmbedding by the operators; returns how many.

    before:  Mul(Mul(x, Reciprocal(Sqrt(Add(ReduceMean(Pow(x, 2)), eps)))), w)
    after:   RMSNormalization(x, w)
    before:  Add(Mul(x, c), Mul(Concat(Neg(x[half:]), x[:half]), s)),  c and s = Unsqueeze(k * Cos or Sin(Concat(f, f)))
    after:   RotaryEmbedding(x, k * Cos(f), k * Sin(f))
    before:  Concat(RotaryEmbedding(x[:r]), x[r:])
    after:   RotaryEmbedding(x, rotary_embedding_dim=r)

    Kept untouched: a norm over other axes than the last; pairwise (interleaved) rotations in small operators; a table
    whose two halves are not the same angles; a head size that is not known.
    Source: https://onnx.ai/onnx/operators/onnx__RMSNormalization.html, https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html
    """
    del target  # what an operator is does not depend on the target
    rule_sets = (
        _rms_normalization.rms_normalization_ruleset,
        _rotary_embedding.rotary_embedding_rules,
        RewriteRuleSet([SCALED_ROTATION]),
        _rotary_embedding.partial_embedding_rules,
    )
    count = sum(int(rules.apply_to_model(model)) for rules in rule_sets)
    if count:  # the rules leave old constants behind, and the types of new values open
        remove_dead_nodes(model)
        ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)(model)
    return count


def _scaled_rotation(
    op: Any, x: Any, freqs: Any, scale: Any, start1: Any, end1: Any, start2: Any, end2: Any
) -> Any:  # the parameters are the pattern's variables
    """x * c + rotate_half(x) * s with c, s = scale * cos, sin over freqs repeated once."""
    repeated = op.Concat(freqs, freqs, axis=-1)
    cos = op.Unsqueeze(op.Mul(op.Cos(repeated), scale), [1])
    sin = op.Unsqueeze(op.Mul(op.Sin(repeated), scale), [1])
    half1 = op.Slice(x, start1, end1, [3], [1])
    half2 = op.Slice(x, start2, end2, [3], [1])
    return x * cos + op.Concat(op.Neg(half2), half1, axis=-1) * sin


def _check_scaled_rotation(
    context: Any,
    x: ir.Value,
    scale: ir.Value,
    start1: ir.Value,
    end1: ir.Value,
    start2: ir.Value,
    end2: ir.Value,
    **_: Any,
) -> MatchResult:
    """Head size known, halves equal, scale one number."""
    result = MatchResult()
    if x.shape is None or len(x.shape) != 4 or not isinstance(x.shape[3], int) or not isinstance(x.shape[1], int):
        return result.fail("number of heads and head size are not known", x)
    head_dim = x.shape[3]
    bounds = [small_constant(value) for value in (start1, end1, start2, end2)]
    found = [None if bound is None else min(int(bound.item()), head_dim) for bound in bounds]
    if found != [0, head_dim // 2, head_dim // 2, head_dim]:
        return result.fail(f"x is cut at {found}, not into two halves of {head_dim // 2}", x)
    factor = small_constant(scale)
    if factor is None or factor.size != 1 or factor.dtype != np.float32:
        return result.fail("the table is scaled by something else than one float32 number", scale)
    return result


def _rotate_scaled(op: Any, x: ir.Value, freqs: ir.Value, scale: ir.Value, **_: Any) -> Any:
    """RotaryEmbedding over half as wide a table."""
    assert x.shape is not None
    cos = op.Mul(op.Cos(freqs), scale)
    sin = op.Mul(op.Sin(freqs), scale)
    return op.RotaryEmbedding(x, cos, sin, interleaved=0, num_heads=x.shape[1])


# The attention factor of YaRN and LongRoPE. Source: Peng et al. 2023, "YaRN", section 3.4. The table's nodes stay:
# q and k of all layers share them, and dead code goes later.
SCALED_ROTATION = RewriteRule(
    _scaled_rotation, _rotate_scaled, _check_scaled_rotation, name="ScaledRotaryEmbedding", remove_nodes=False
)
