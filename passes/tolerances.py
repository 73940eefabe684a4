"""How far a pass may change what a graph answers: one table of kinds, one table of passes, and a reason for each row.

A pass's name and the graph before it flow in; a `Tolerance` flows out, and words for what lies outside. A graph that
rounds already answers a change in the order of sums with roundings that fall to the other side, so that its own formats
count too. One loose default for all was the alternative and lost: it passes almost anything.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from .compare_rows import Figures
from .number_formats import FORMATS
from .target import Target

__all__ = ["KINDS", "PASS_KINDS", "RESCALING", "Tolerance", "combined", "faults_of", "tolerance_of"]


@dataclass(frozen=True)
class Tolerance:
    """What one layer may add; see `Figures`. Errors of layers are independent: `relative` and `max_abs` grow with the
    root of the number of layers before, `cosine_gap` (1 - cosine) and `kl` with the number; `top1` does not grow.
    """

    kind: str
    relative: float
    max_abs: float
    cosine_gap: float
    kl: float
    top1: float
    reason: str

    def scaled(self, relative: float) -> "Tolerance":
        """The same kind with another `relative`, everything else in proportion."""
        factor = relative / self.relative
        return replace(
            self,
            kind=f"{self.kind}, as the recipe says",
            relative=relative,
            max_abs=self.max_abs * factor,
            cosine_gap=self.cosine_gap * factor**2,
            kl=self.kl * factor**2,
            top1=1.0 - min(1.0, (1.0 - self.top1) * factor),
        )


# Behind each reason what was measured: the worst over the families of tests/tiny_models.py at layer 0 -> at the logits.
KINDS = {
    one.kind: one
    for one in (
        Tolerance("float32", 4e-6, 4e-5, 1e-8, 1e-8, 0.97, "sums in another order: 1e-7 -> 5e-7, n * 2^-24 at most"),
        Tolerance("moved", 0.004, 0.02, 0.0002, 1e-4, 0.90, "roundings fall to the other side: 2e-5 -> 6e-3"),
        Tolerance("moved int8", 0.01, 0.05, 0.001, 5e-4, 0.86, "the same in steps of 1/127: 1e-9 -> 6e-3"),
        Tolerance("bf16 cache", 0.016, 0.10, 0.004, 1e-3, 0.85, "keys, values, weights to 8 bits: 5e-3 -> 1.8e-2"),
        Tolerance("moved fp8", 0.03, 0.15, 0.005, 2e-3, 0.80, "the same in steps of an eighth of a number"),
        Tolerance("fp8 cache", 0.06, 0.30, 0.02, 8e-3, 0.70, "keys, values, weights to 4 bits of mantissa"),
        Tolerance("fp16", 0.008, 0.04, 0.001, 2e-4, 0.88, "2^-12 a number, and bf16 caches behind: 5e-3 -> 1e-2"),
        Tolerance("bf16", 0.035, 0.15, 0.024, 3e-3, 0.80, "both operands to 8 bits, 2^-9 each: 7e-3 -> 3.7e-2"),
        Tolerance("int8_rows16", 0.07, 0.38, 0.034, 8e-3, 0.75, "columns in 127 steps: 1.3e-2 -> 9e-2"),
        Tolerance("int8_weight_only", 0.035, 0.18, 0.006, 3e-3, 0.78, "blocks in 127 steps, bf16: 1.5e-2 -> 3e-2"),
        Tolerance("int8", 0.08, 0.40, 0.036, 1e-2, 0.72, "rows and columns in 127 steps: 1.9e-2 -> 1e-1"),
        Tolerance("fp8", 0.13, 0.60, 0.08, 4e-2, 0.60, "4 bits of mantissa in both operands: 6e-2 -> 1.7e-1"),
        Tolerance("int4_weight_only", 0.35, 1.2, 0.4, 0.4, 0.25, "15 levels a block: 1.8e-1 -> 4.3e-1"),
    )
}

EXACT, CACHE, EMBEDDING, WEIGHTS = "float32", "cache", "embedding", "weights"
PASS_KINDS: Mapping[str, tuple[str, ...]] = {  # what a pass rounds; one that is not here rounds nothing
    "insert_paged_attention": (CACHE,),
    "smooth_inputs": (CACHE,),  # values are divided before they are rounded into the cache
    "quantize_fp8": (CACHE, "fp8"),
    "quantize_int8": (CACHE, "int8", "int8_rows16"),
    "quantize_weight_only": (CACHE, "int8_weight_only", "int4_weight_only"),
    "cast_linears": (CACHE, WEIGHTS, "bf16", "fp16"),
    "quantize_kv_cache": ("fp8 cache", WEIGHTS),
    "store_embedding": (CACHE, "fp8 cache", WEIGHTS, EMBEDDING),
}
RESCALING = ("smooth_inputs",)  # leaves attention's channels scaled, each by one factor
INT8_OPS = ("LinearInt8", "GatedLinearInt8")
ROUNDING_OPS = ("QuantizeLinear", "LinearBf16", "GatedLinearBf16", "LinearInt8Rows16", "GatedLinearInt8Rows16")
SIXTEEN_BITS = (ir.DataType.BFLOAT16, ir.DataType.FLOAT16)


def tolerance_of(name: str, before: ir.Model, target: Target, overrides: Mapping[str, float]) -> Tolerance:
    """What the pass `name` may change in the graph `before`; `overrides` say another relative error by pass."""
    kinds = {EXACT, *_rounded_by(name, target), *_moved_in(before.graph)}
    loosest = max((KINDS[kind] for kind in kinds), key=lambda one: (one.relative, one.kind))
    return loosest.scaled(overrides[name]) if name in overrides else loosest


def combined(tolerances: Sequence[Tolerance]) -> Tolerance:
    """Of several passes together, whose errors are independent of each other."""
    loosest = max(tolerances, key=lambda one: one.relative)
    share = math.sqrt(sum((one.relative / loosest.relative) ** 2 for one in tolerances))
    return replace(loosest.scaled(loosest.relative * share), kind=loosest.kind)


def _rounded_by(name: str, target: Target) -> Iterator[str]:
    """The kinds that the pass brings into the graph, for this target: formats that nobody asked for do not count."""
    asked = {target.weights, target.head or target.weights, *(kept for _, kept in target.keep)} - {"fp32"}
    for kind in PASS_KINDS.get(name, ()):
        if kind in asked or (kind == "fp8 cache" and target.cache_dtype == "float8e4m3fn"):
            yield kind
        elif kind == CACHE and target.float_cache_dtype != "float32":
            yield "bf16 cache"
        elif kind == WEIGHTS:
            yield from asked & FORMATS.keys()  # rows that differ a little fall to other steps
        elif kind == EMBEDDING and target.embedding_format != "fp32":
            yield target.embedding_format


def _moved_in(graph: ir.Graph) -> Iterator[str]:
    """What a change in the order of sums can move in this graph."""
    for node in graph:
        if any(output.dtype == ir.DataType.FLOAT8E4M3FN for output in node.outputs):
            yield "moved fp8"
        elif node.op_type in INT8_OPS or node.outputs[0].dtype == ir.DataType.INT8:
            yield "moved int8"
        elif node.op_type in ROUNDING_OPS or any(output.dtype in SIXTEEN_BITS for output in node.outputs):
            yield "moved"  # the pool of an attention counts


def faults_of(figures: Iterable[Figures], tolerance: Tolerance) -> Iterator[str]:
    """Every figure outside `tolerance`, with its place, in words; layers first. A figure that is no number is outside.

    `figures` are those of one graph: layer.0, layer.1, ..., logits.
    """
    for depth, one in enumerate(figures, 1):
        wrong = [f"{what} {value:.3g}, allowed {limit:.3g}" for what, value, limit in _outside(one, depth, tolerance)]
        if wrong:
            yield f"{one.name} at sequence {one.row[0]}, position {one.row[1]}: {', '.join(wrong)}"


def _outside(one: Figures, depth: int, tolerance: Tolerance) -> Iterator[tuple[str, float, float]]:
    root = math.sqrt(depth)
    checks = (
        ("relative error", one.relative, tolerance.relative * root),
        ("largest error", one.max_abs, tolerance.max_abs * root),
        ("1 - cosine", 1 - one.cosine, tolerance.cosine_gap * depth),
        ("KL", one.kl or 0.0, tolerance.kl * depth),
    )
    yield from (check for check in checks if not check[1] <= check[2])
    if one.top1 is not None and not one.top1 >= tolerance.top1:
        yield "top-1 agreement", one.top1, tolerance.top1
