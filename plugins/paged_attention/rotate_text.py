"""Lines of ONNX text that rotate queries and keys; part of meaning.py.

The attributes of a node flow in; lines that make q_turned and k_turned out of q_heads and k_heads flow out. Spelled out
in products and sums instead of RotaryEmbedding: each then rounds on its own, as in the kernels, and the bits of caches
can be compared.
"""

from collections.abc import Sequence

from .schema import Attributes

__all__ = ["rotations"]


def rotations(a: Attributes, inputs: Sequence[str]) -> list[str]:
    """q_turned and k_turned: a, b -> a cos - b sin, b cos + a sin on the first rotary_dim elements of each head."""
    rotary_dim = int(a.get("rotary_dim", 0))
    if "cos_sin" not in inputs or rotary_dim == 0:
        return ["q_turned = Identity (q_heads)", "k_turned = Identity (k_heads)"]
    return [
        f"table_shape = Constant <value_ints = [-1, 1, {rotary_dim}]> ()",
        "table = Reshape (cos_sin, table_shape)",
        "cosine, sine = Split <axis = -1, num_outputs = 2> (table)",
        f"turning_end = Constant <value_ints = [{rotary_dim}]> ()",
        f"head_end = Constant <value_ints = [{int(a['head_dim'])}]> ()",
        "zero_index = Constant <value_ints = [0]> ()",
        "one_index = Constant <value_ints = [1]> ()",
        "two_index = Constant <value_ints = [2]> ()",
        "last_axis = Constant <value_ints = [-1]> ()",
        *_rotation("q", a),
        *_rotation("k", a),
    ]


def _rotation(x: str, a: Attributes) -> list[str]:
    if int(a.get("interleaved", 0)):
        split = [
            f"{x}_a = Slice ({x}_part, zero_index, turning_end, last_axis, two_index)",
            f"{x}_b = Slice ({x}_part, one_index, turning_end, last_axis, two_index)",
        ]
        join = [
            f"{x}_a_column = Unsqueeze ({x}_a_turned, last_axis)",
            f"{x}_b_column = Unsqueeze ({x}_b_turned, last_axis)",
            f"{x}_pairs = Concat <axis = -1> ({x}_a_column, {x}_b_column)",
            f"{x}_part_shape = Shape ({x}_part)",
            f"{x}_part_turned = Reshape ({x}_pairs, {x}_part_shape)",
        ]
    else:
        split = [f"{x}_a, {x}_b = Split <axis = -1, num_outputs = 2> ({x}_part)"]
        join = [f"{x}_part_turned = Concat <axis = -1> ({x}_a_turned, {x}_b_turned)"]
    return [
        f"{x}_part = Slice ({x}_heads, zero_index, turning_end, last_axis)",
        f"{x}_rest = Slice ({x}_heads, turning_end, head_end, last_axis)",
        *split,
        f"{x}_a_cosine = Mul ({x}_a, cosine)",
        f"{x}_b_sine = Mul ({x}_b, sine)",
        f"{x}_b_cosine = Mul ({x}_b, cosine)",
        f"{x}_a_sine = Mul ({x}_a, sine)",
        f"{x}_a_turned = Sub ({x}_a_cosine, {x}_b_sine)",
        f"{x}_b_turned = Add ({x}_b_cosine, {x}_a_sine)",
        *join,
        f"{x}_turned = Concat <axis = -1> ({x}_part_turned, {x}_rest)",
    ]
