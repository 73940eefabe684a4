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
    dots = {"LinearF32": _dot_f32, "LinearBf16": _dot_bf16, "LinearInt8": _dot_int8, "LinearInt8Rows16": _dot_rows16}
    body = [*_unpack(GROUPS[op_type], k, n), *dots[op_type](), *end]
    lines = "\n".join(f"    {line}" for line in body)
    head = f"{name} <{IN_FEATURES}, {OUT_FEATURES}> ({', '.join(inputs)}) => (y)"
    return f'<domain: "paceline", opset_import: ["" : 23]>\n{head} {{\n{lines}\n}}\n'


def _unpack(group: int, k: int, n: int) -> list[str]:
    """matrix [k, n] float32 out of the panels."""
    shape_in = f"[0, 0, 16, {group}]"
    return [
        f"panel_shape = Constant <value_ints = {shape_in}> ()",
        "weight_float = Cast <to = 1> (weight)",
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
