"""FP8 KV cache: pages of E4M3 with one scale for a layer's keys and one for its values.

In: paged attention over pools in 16 bits, and calibrated ranges of keys (after rotation) and values. Out: the same over
pools of one byte a number, scales as inputs of the op. A scale a head or a token was the alternative and lost: engines
take one a layer, and E4M3 has exponents of its own.
Source: OCP 8-bit floating point specification (OFP8) 1.0.
"""

import numpy as np
import onnx_ir as ir

from ..plugins import contract
from ..plugins.paged_attention.schema import PAGED_ATTENTION, PAGED_ATTENTION_INPUTS
from .base import Fusion, run_fusion
from .quantize_arrays import FP8_MAX
from .rounded_rows import Place
from .target import Target

__all__ = ["quantize_kv_cache"]

FP8 = ir.TensorType(ir.DataType.FLOAT8E4M3FN)


def quantize_kv_cache(model: ir.Model, target: Target) -> int:
    """Give every layer's pool the target's E4M3 and its attention the scales; returns how many layers.

    before:  out, kv_pages_out.i = PagedAttention(q, k, v, kv_pages.i, ..., cos_sin?, sinks?)
    after:   out, kv_pages_out.i = PagedAttention(q, k, v, kv_pages.i, ..., cos_sin?, sinks?, k_scale, v_scale)

    Kept untouched: all, where the target's cache is not E4M3; layers that calibration has not seen, with that reason.
    """
    if target.cache_dtype != "float8e4m3fn":
        return 0
    return run_fusion(model, target, Fusion(_pattern, _check, _rewrite))


def _pattern(node: ir.Node) -> ir.Node | None:
    is_paged = node.domain == contract.DOMAIN and node.op_type == PAGED_ATTENTION
    return node if is_paged and len(node.inputs) < len(PAGED_ATTENTION_INPUTS) else None


def _check(attention: ir.Node, target: Target) -> tuple[ir.Node, float, float] | str:
    seen = target.calibration.caches.get(attention.attributes.get_int("layer", -1))
    if seen is None:
        return "calibration knows no range of this layer's keys and values"
    return attention, seen.key, seen.value


def _rewrite(graph: ir.Graph, plan: tuple[ir.Node, float, float]) -> None:
    attention, key, value = plan
    place = Place(graph, attention, f"kv_pages.{attention.attributes.get_int('layer')}")
    scales = [
        place.constant(f"{place.stem}/{name}", np.array([max(largest, 1e-30) / FP8_MAX], np.float32))
        for name, largest in (("k_scale", key), ("v_scale", value))
    ]
    missing = len(PAGED_ATTENTION_INPUTS) - len(scales) - len(attention.inputs)
    outputs = [ir.Value(name=old.name, type=old.type, shape=old.shape) for old in attention.outputs]
    outputs[1].type = FP8
    node = ir.node(
        PAGED_ATTENTION,
        [*attention.inputs, *[None] * missing, *scales],
        attention.attributes,
        domain=contract.DOMAIN,
        outputs=outputs,
    )
    pool = attention.inputs[3]
    assert pool is not None
    pool.type = FP8
    graph.insert_before(attention, node)
    for old, new in zip(attention.outputs, outputs, strict=True):
        old.replace_all_uses_with(new, replace_graph_outputs=True)
