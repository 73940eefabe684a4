"""The number formats that linear layers can have: what their weights are stored in, what their rows are rounded to.

Nothing flows through here: recipe, passes, gate and planner read one table. A format says everything about the numbers
and nothing about a device; which of them a target can run is the target's own table.
"""

from dataclasses import dataclass

import onnx_ir as ir

__all__ = ["FORMATS", "HEADS", "HIGHER", "NumberFormat"]


@dataclass(frozen=True)
class NumberFormat:
    """One format. `weight` and `rows` are element types; `weight_bits` counts the bits of one stored weight.

    `is_blocked` tells that weights have a scale for each block of a column, and not for each column; `is_calibrated`
    that rows have a fixed scale, which somebody must measure first.
    """

    weight: ir.DataType
    rows: ir.DataType
    weight_bits: int
    is_blocked: bool = False
    is_calibrated: bool = False


FORMATS = {
    "fp32": NumberFormat(ir.DataType.FLOAT, ir.DataType.FLOAT, 32),
    "bf16": NumberFormat(ir.DataType.BFLOAT16, ir.DataType.BFLOAT16, 16),
    "fp16": NumberFormat(ir.DataType.FLOAT16, ir.DataType.FLOAT16, 16),
    "fp8": NumberFormat(ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E4M3FN, 8, is_calibrated=True),
    "int8": NumberFormat(ir.DataType.INT8, ir.DataType.INT8, 8),
    "int8_rows16": NumberFormat(ir.DataType.INT8, ir.DataType.INT16, 8),
    "int8_weight_only": NumberFormat(ir.DataType.INT8, ir.DataType.BFLOAT16, 8, is_blocked=True),
    "int4_weight_only": NumberFormat(ir.DataType.INT4, ir.DataType.BFLOAT16, 4, is_blocked=True),
}

# The head's format where the recipe names none: its rows have outliers that 8 bits do not bear.
HEADS = {
    "fp8": "bf16",
    "int8": "int8_rows16",
    "int8_weight_only": "int8_rows16",
    "int4_weight_only": "int8_rows16",
}

# What a layer that does not bear its format is raised to: 16 bits for what has fewer.
HIGHER = {"fp8": "bf16", "int8": "bf16", "int8_rows16": "bf16", "int8_weight_only": "bf16", "int4_weight_only": "bf16"}
