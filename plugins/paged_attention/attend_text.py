"""Lines of ONNX text from queries, keys and values to the attention's result; part of meaning.py.

The attributes of a node and the inputs that it has flow in; lines flow out, first those that make `scores`, then those
that make `out` with one of two softmaxes: in float, or with weights in the cache's dtype.
"""

from collections.abc import Sequence

from .schema import Attributes

__all__ = ["mix", "mix_in_cache_type", "score"]


def score(query: str, a: Attributes) -> list[str]:
    """scores [T, kv_heads, group, keys], from `query` [T, heads, head_dim], keys_of_row, position [T], key_position."""
    heads, kv_heads, dim = int(a["heads"]), int(a["kv_heads"]), int(a["head_dim"])
    return [
        f"group_shape = Constant <value_ints = [0, {kv_heads}, {heads // kv_heads}, {dim}]> ()",
        f"q_groups = Reshape ({query}, group_shape)",  # [T, kv_heads, group, head_dim]
        "keys_by_head = Transpose <perm = [0, 2, 3, 1]> (keys_of_row)",
        "values_by_row = Transpose <perm = [0, 2, 1, 3]> (values_of_row)",
        "products = MatMul (q_groups, keys_by_head)",  # [T, kv_heads, group, keys]
        f"scale = Constant <value_float = {float(a['scale'])!r}> ()",
        "scaled = Mul (products, scale)",
        *_softcap(float(a.get("softcap", 0.0))),
        *_visibility(int(a.get("window", 0))),
        "minus_infinity = Constant <value_float = -3.4028234e38> ()",
        "scores = Where (visible, capped, minus_infinity)",
    ]


def mix(a: Attributes, inputs: Sequence[str]) -> list[str]:
    """out, from scores and values_of_row."""
    return [
        *_softmax(a, inputs),
        "mixed = MatMul (weights, values_by_row)",
        "out_shape = Shape (q_rows)",
        "out = Reshape (mixed, out_shape)",
    ]


def mix_in_cache_type(a: Attributes, inputs: Sequence[str]) -> list[str]:
    """out, with weights rounded to the type of `operand`: the values' own where they have no scale.

    They are powers of two relative to a whole number, so their rounding depends neither on that number nor on the other
    keys: a kernel may take keys in any portions.
    """
    return [
        "log2_of_e = Constant <value_float = 1.44269504> ()",
        "two = Constant <value_float = 2.0> ()",
        "along_keys = Constant <value_ints = [-1]> ()",
        "powers = Mul (scores, log2_of_e)",
        "highest_power = ReduceMax <keepdims = 1> (powers, along_keys)",
        *_highest_of_keys_and_sink(a, inputs),
        "shift = Ceil (highest)",
        "shifted = Sub (powers, shift)",
        "exact_weights = Pow (two, shifted)",
        "weights_in_operand_type = CastLike (exact_weights, operand)",
        "weights = Cast <to = 1> (weights_in_operand_type)",
        "total_of_keys = ReduceSum <keepdims = 1> (weights, along_keys)",
        *_total_of_keys_and_sink(inputs),
        "sums = MatMul (weights, values_by_row)",
        "mixed = Div (sums, total)",
        "out_shape = Shape (q_rows)",
        "out = Reshape (mixed, out_shape)",
    ]


def _highest_of_keys_and_sink(a: Attributes, inputs: Sequence[str]) -> list[str]:
    if "sinks" not in inputs:
        return ["highest = Identity (highest_power)"]
    return [
        *_sink_of_head(a),
        "sink_power = Mul (sink_of_head, log2_of_e)",
        "highest = Max (highest_power, sink_power)",
    ]


def _total_of_keys_and_sink(inputs: Sequence[str]) -> list[str]:
    if "sinks" not in inputs:
        return ["total = Identity (total_of_keys)"]
    return [
        "shifted_sink = Sub (sink_power, shift)",
        "sink_weight = Pow (two, shifted_sink)",
        "total = Add (total_of_keys, sink_weight)",
    ]


def _sink_of_head(a: Attributes) -> list[str]:
    heads, kv_heads = int(a["heads"]), int(a["kv_heads"])
    return [
        f"sink_shape = Constant <value_ints = [1, {kv_heads}, {heads // kv_heads}, 1]> ()",
        "sink_of_head = Reshape (sinks, sink_shape)",
    ]


def _softcap(softcap: float) -> list[str]:
    if softcap == 0:
        return ["capped = Identity (scaled)"]
    return [
        f"cap = Constant <value_float = {softcap!r}> ()",
        "in_caps = Div (scaled, cap)",
        "bent = Tanh (in_caps)",
        "capped = Mul (bent, cap)",
    ]


def _visibility(window: int) -> list[str]:
    """visible [T, 1, 1, keys]: keys at or before the row's position, and inside its window."""
    causal = [
        "column = Constant <value_ints = [1]> ()",
        "position_column = Unsqueeze (position, column)",
        "is_past = LessOrEqual (key_position, position_column)",
    ]
    if window:
        causal += [
            f"window = Constant <value_int = {window}> ()",
            "oldest = Sub (position_column, window)",
            "is_near = Greater (key_position, oldest)",
            "is_visible = And (is_past, is_near)",
        ]
    else:
        causal += ["is_visible = Identity (is_past)"]
    return [*causal, "head_axes = Constant <value_ints = [1, 2]> ()", "visible = Unsqueeze (is_visible, head_axes)"]


def _softmax(a: Attributes, inputs: Sequence[str]) -> list[str]:
    """weights like scores; a sink is one more score per head that takes weight and gives nothing."""
    if "sinks" not in inputs:
        return ["weights = Softmax <axis = -1> (scores)"]
    return [
        *_sink_of_head(a),
        "scores_shape = Shape <start = 0, end = 3> (scores)",
        "last_size = Constant <value_ints = [1]> ()",
        "sink_column_shape = Concat <axis = 0> (scores_shape, last_size)",
        "sink_column = Expand (sink_of_head, sink_column_shape)",
        "with_sink = Concat <axis = -1> (scores, sink_column)",
        "all_weights = Softmax <axis = -1> (with_sink)",
        "from_start = Constant <value_ints = [0]> ()",
        "to_sink = Constant <value_ints = [-1]> ()",
        "along_keys = Constant <value_ints = [-1]> ()",
        "weights = Slice (all_weights, from_start, to_sink, along_keys)",
    ]
