"""What the linear ops mean, in standard ops; one ONNX function per format, size and presence of a bias."""

from collections.abc import Mapping, Sequence

from .schema import FORMATS, IN_FEATURES, OUT_FEATURES

__all__ = ["gated_linear_text", "linear_text"]

GROUPS = {linear_format.op_type: linear_format.group for linear_format in FORMATS.values()}


def linear_text(op_type: str, attributes: Mapping[str, float], inputs: Sequence[str]) -> str:
    """The function `op_type` (LinearF32, LinearBf16, LinearInt8) for these sizes and (present) inputs, as ONNX text."""
    end = "y = Add (product, bias)" if "bias" in inputs else "y = Identity (product)"
    return _function(op_type, op_type, attributes, inputs, [end])


def gated_linear_text(op_type: str, attributes: Mapping[str, float], inputs: Sequence[str]) -> str:
    """The function `Gated` + LinearF32, LinearBf16 or LinearInt8: silu of the first half times the second."""
    end = [
        "gate, up = Split <axis = -1, num_outputs = 2> (product)",
        "share = Sigmoid (gate)",
        "open = Mul (gate, share)",
        "y = Mul (open, up)",
    ]
    return _function(f"Gated{op_type}", op_type, attributes, inputs, end)


def _function(
    name: str, op_type: str, attributes: Mapping[str, float], inputs: Sequence[str], end: Sequence[str]
) -> str:
    k, n = int(attributes[IN_FEATURES]), int(attributes[OUT_FEATURES])
    body = [*PANELS.get(op_type, _stored_panels)(), *_unpack(GROUPS[op_type], k, n), *DOTS[op_type](), *end]
    lines = "\n".join(f"    {line}" for line in body)
    head = f"{name} <{IN_FEATURES}, {OUT_FEATURES}> ({', '.join(inputs)}) => (y)"
    return f'<domain: "paceline", opset_import: ["" : 23]>\n{head} {{\n{lines}\n}}\n'


def _stored_panels() -> list[str]:
    return ["weight_float = Cast <to = 1> (weight)"]


def _coded_panels() -> list[str]:
    """weight_float [panels, words, 32] out of 12-bit codes: (sign) * (1.mantissa) * 2^(exponent - 127)."""
    return [
        "weight_int = Cast <to = 6> (weight)",  # [panels, groups, 192]
        "parts = Constant <value_ints = [64, 64, 64]> ()",
        "pairs_ab, pairs_cd, halves = Split <axis = 2> (weight_int, parts)",
        "sixteen = Constant <value = int32 {16}> ()",
        "low_halves = Mod (halves, sixteen)",
        "high_halves = Div (halves, sixteen)",
        "pairs_flat = Concat <axis = 2> (pairs_ab, pairs_cd)",
        "codes_flat = Concat <axis = 2> (low_halves, high_halves)",
        "pair_shape = Constant <value_ints = [0, 0, 2, 32, 2]> ()",
        "pairs = Reshape (pairs_flat, pair_shape)",  # [panels, groups, (A and B, C and D), 32, byte]
        "codes = Reshape (codes_flat, pair_shape)",
        "sign_bit = Constant <value = int32 {128}> ()",
        "mantissa_int = Mod (pairs, sign_bit)",
        "sign_swapped = Div (pairs, sign_bit)",
        "other = Constant <value_ints = [1, 0]> ()",
        "sign_int = Gather <axis = 4> (sign_swapped, other)",  # a byte has its neighbour's sign
        "table = Cast <to = 6> (exponents)",
        "exponent = Gather (table, codes)",
        "one_int = Constant <value = int32 {1}> ()",
        "hidden_int = Min (exponent, one_int)",  # 0 for denormals, whose exponent counts as 1
        "power_int = Max (exponent, one_int)",
        "hidden = Cast <to = 1> (hidden_int)",
        "power = Cast <to = 1> (power_int)",
        "mantissa = Cast <to = 1> (mantissa_int)",
        "sign = Cast <to = 1> (sign_int)",
        "offset = Constant <value_float = 127.0> ()",
        "mantissas = Constant <value_float = 128.0> ()",
        "two = Constant <value_float = 2.0> ()",
        "one = Constant <value_float = 1.0> ()",
        "shifted = Sub (power, offset)",
        "scale_of_power = Pow (two, shifted)",
        "fraction = Div (mantissa, mantissas)",
        "significand = Add (hidden, fraction)",
        "magnitude_of = Mul (significand, scale_of_power)",
        "double_sign = Mul (sign, two)",
        "signed_one = Sub (one, double_sign)",
        "in_pairs = Mul (magnitude_of, signed_one)",
        "in_words = Transpose <perm = [0, 1, 2, 4, 3]> (in_pairs)",
        "flat_shape = Constant <value_ints = [-1]> ()",
        "flat = Reshape (in_words, flat_shape)",
        "escape_float = Cast <to = 1> (escape_values)",
        "whole = ScatterElements (flat, escape_places, escape_float)",
        "count = Shape <start = 0, end = 1> (weight)",
        "rest_of = Constant <value_ints = [-1, 32]> ()",
        "word_shape = Concat <axis = 0> (count, rest_of)",
        "weight_float = Reshape (whole, word_shape)",
    ]


def _unpack(group: int, k: int, n: int) -> list[str]:
    """matrix [k, n] float32 out of the panels' numbers."""
    shape_in = f"[0, 0, 16, {group}]"
    return [
        f"panel_shape = Constant <value_ints = {shape_in}> ()",
        "panels = Reshape (weight_float, panel_shape)",  # [panels, words, 16, group]
        "words = Transpose <perm = [1, 3, 0, 2]> (panels)",
        "row_count = Shape <start = 1, end = 2> (panels)",
        f"in_group = Constant <value_ints = [{group}]> ()",
        "padded_k = Mul (row_count, in_group)",
        "rest = Constant <value_ints = [-1]> ()",
        "matrix_shape = Concat <axis = 0> (padded_k, rest)",
        "padded = Reshape (words, matrix_shape)",
        "begin = Constant <value_ints = [0, 0]> ()",
        f"end = Constant <value_ints = [{k}, {n}]> ()",
        "matrix = Slice (padded, begin, end)",
    ]


def _dot_f32() -> list[str]:
    return ["product = MatMul (x, matrix)"]


def _dot_bf16() -> list[str]:
    return [
        "x_bf16 = Cast <to = 16> (x)",
        "x_rounded = Cast <to = 1> (x_bf16)",
        "product = MatMul (x_rounded, matrix)",
    ]


def _dot_int8() -> list[str]:
    """x in steps of its row's max|x| / 127, rounded half to even; the dot product is exact up to 2^24."""
    return _dot_in_steps(127.0)


def _dot_rows16() -> list[str]:
    """x in steps of its row's max|x| / 32512, 127 * 256."""
    return _dot_in_steps(32512.0)


def _dot_in_steps(levels: float) -> list[str]:
    return [
        "last = Constant <value_ints = [-1]> ()",
        "magnitude = Abs (x)",
        "largest = ReduceMax <keepdims = 1> (magnitude, last)",
        f"levels = Constant <value_float = {levels}> ()",
        "nothing = Constant <value_float = 0.0> ()",
        "is_zero = Equal (largest, nothing)",
        "quotient = Div (levels, largest)",
        "inverse = Where (is_zero, nothing, quotient)",
        "steps_of_x = Mul (x, inverse)",
        "x_quantized = Round (steps_of_x)",
        "dot = MatMul (x_quantized, matrix)",
        "step = Div (largest, levels)",
        "dot_in_x = Mul (dot, step)",
        "product = Mul (dot_in_x, scale)",
    ]


PANELS = {"LinearBf16Coded": _coded_panels}
DOTS = {
    "LinearBf16": _dot_bf16,
    "LinearBf16Coded": _dot_bf16,
    "LinearF32": _dot_f32,
    "LinearInt8": _dot_int8,
    "LinearInt8Rows16": _dot_rows16,
}
