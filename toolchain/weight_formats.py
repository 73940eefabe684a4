"""What one weight costs in each format, as one table: the planner's only source of bytes per weight.

A format's name and a matrix flow in; bytes on disk and in memory flow out, padding and scales included. Asking the
packers for their shapes was the alternative and lost: forecasts must also speak of formats that nobody packs here yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..plugins.linear.schema import PADDED_K, PANEL_COLUMNS, padded_size

__all__ = ["FORMATS", "WeightFormat", "packed_bytes"]

SCALE_BYTES = 4  # float32


@dataclass(frozen=True)
class WeightFormat:
    """One row of the table.

    `weight_bits`: of an element of a packed matrix. `table_bits`: of an element of the embedding table beside it.
    `scale_block`: rows of a column that share one float32 scale; 0 is the whole column, None is no scale at all.
    """

    weight_bits: int
    table_bits: int
    scale_block: int | None = None


# By falling precision: the order in which proposals give it up.
FORMATS: Mapping[str, WeightFormat] = {
    "fp32": WeightFormat(weight_bits=32, table_bits=32),
    "bf16": WeightFormat(weight_bits=16, table_bits=16),
    "int8": WeightFormat(weight_bits=8, table_bits=16, scale_block=0),
}


def packed_bytes(in_features: int, out_features: int, weights: WeightFormat) -> int:
    """Bytes of a packed [in, out] matrix: rows padded to 64, columns to panels of 16, and its scales.

    Source: plugins/linear/schema.py.
    """
    elements = padded_size(in_features, PADDED_K) * padded_size(out_features, PANEL_COLUMNS)
    return elements * weights.weight_bits // 8 + _num_scales(in_features, out_features, weights) * SCALE_BYTES


def _num_scales(in_features: int, out_features: int, weights: WeightFormat) -> int:
    if weights.scale_block is None:
        return 0
    return out_features * (-(-in_features // weights.scale_block) if weights.scale_block else 1)
