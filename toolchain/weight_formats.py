"""What one matrix costs in each number format: in the portable graph, and in the engine of a target.

A format's name and a matrix flow in; bytes flow out, padding and scales included. The formats themselves are the table
of passes/number_formats.py; the one table here says what the CPU engine widens them to. Asking the packers for their
shapes was the alternative and lost: they speak of arrays, and a forecast has none.
"""

from collections.abc import Mapping

from ..passes.number_formats import FORMATS
from ..plugins.linear import schema
from ..plugins.linear.schema import PADDED_K, PANEL_COLUMNS, padded_size

__all__ = ["CPU_KERNELS", "SMALLER_ON_CPU", "engine_bits", "packed_bytes", "stored_bytes"]

SCALE_BYTES = 4  # float32
PACKED_BITS = 32  # a kernel's group of neighbours along K fills so many

# format of a layer -> the kernel's, as passes/lower_to_cpu.py decides
CPU_KERNELS: Mapping[str, str] = {
    "fp32": "fp32",
    "bf16": "bf16",
    "fp16": "fp32",
    "fp8": "bf16",
    "int8": "int8",
    "int8_rows16": "int8_rows16",
    "int8_weight_only": "bf16",
    "int4_weight_only": "bf16",
}

SMALLER_ON_CPU = ("fp32", "bf16", "int8_rows16")  # what saves memory there, least loss first


def engine_bits(name: str) -> int:
    """Bits of one weight in a CPU engine."""
    return PACKED_BITS // schema.FORMATS[CPU_KERNELS[name]].group


def packed_bytes(in_features: int, out_features: int, name: str) -> int:
    """Bytes of a [in, out] matrix in a CPU engine: rows padded to 64, columns to panels of 16, and its scales.

    Source: plugins/linear/schema.py.
    """
    elements = padded_size(in_features, PADDED_K) * padded_size(out_features, PANEL_COLUMNS)
    has_scales = FORMATS[name].weight_bits < 16 and not FORMATS[name].is_blocked  # blocks are widened with their scales
    return elements * engine_bits(name) // 8 + (out_features * SCALE_BYTES if has_scales else 0)


def stored_bytes(in_features: int, out_features: int, name: str, block_size: int) -> int:
    """Bytes of a [in, out] matrix in the portable graph, with a scale a column or a block of it.

    Source: passes/stored_weights.py.
    """
    one = FORMATS[name]
    blocks = -(-in_features // block_size) if one.is_blocked else 1
    scales = out_features * blocks * SCALE_BYTES if one.weight_bits < 16 else 0
    return -(-in_features * out_features * one.weight_bits // 8) + scales
