"""What attention means, in standard ops: the oracle of every kernel, and what a stock onnxruntime runs.

A node's attributes and the optional inputs that it has flow in; an ONNX function flows out, in the ONNX text syntax.
There is one function per combination (ONNX overloads): a body cannot ask whether an optional input is there. Speed is
no aim here; the kernel is for that.
"""

from collections.abc import Mapping, Sequence

from .schema import ATTENTION, ATTRIBUTES, PAGE_SIZE_ATTRIBUTE, PAGED_ATTENTION

__all__ = ["attention_text", "paged_attention_text"]

Attributes = Mapping[str, float]


def attention_text(attributes: Attributes, inputs: Sequence[str]) -> str:
    """The function `Attention` for these attributes and these (present) inputs, as ONNX text."""
    body = [
        *_split_heads(attributes),
        *_rotations(attributes, inputs),
        "t0 = Shape <start = 0, end = 1> (q_heads)",
        "t = Squeeze (t0)",
        "first = Constant <value_int = 0> ()",
        "by_one = Constant <value_int = 1> ()",
        "position = Range (first, t, by_one)",
        "key_position = Identity (position)",
        "zero_axis = Constant <value_ints = [0]> ()",
        "keys_of_row = Unsqueeze (k_turned, zero_axis)",  # [1, T, kv_heads, head_dim]: every row sees the same keys
        "values_of_row = Unsqueeze (v_heads, zero_axis)",
        *_attend(attributes, inputs),
    ]
    return _function(ATTENTION, inputs, ["out"], ATTRIBUTES, body)


def paged_attention_text(attributes: Attributes, inputs: Sequence[str]) -> str:
    """The function `PagedAttention` for these attributes and these (present) inputs, as ONNX text."""
    body = [
        *_split_heads(attributes),
        *_rotations(attributes, inputs),
        *_locate_rows(),
        *_write_pages(attributes),
        *_gather_pages(attributes),
        *_attend(attributes, inputs),
    ]
    return _function(PAGED_ATTENTION, inputs, ["out", "kv_pages_out"], [*ATTRIBUTES, PAGE_SIZE_ATTRIBUTE], body)


def _function(
    name: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Sequence[str], body: Sequence[str]
) -> str:
    lines = "\n".join(f"    {line}" for line in body)
    head = f"{name} <{', '.join(attributes)}> ({', '.join(inputs)}) => ({', '.join(outputs)})"
    return f'<domain: "paceline", opset_import: ["" : 23]>\n{head} {{\n{lines}\n}}\n'


def _split_heads(a: Attributes) -> list[str]:
    """q_heads [T, heads, head_dim]; k_heads and v_heads [T, kv_heads, head_dim]."""
    heads, kv_heads, dim = int(a["heads"]), int(a["kv_heads"]), int(a["head_dim"])
    return [
        f"q_shape = Constant <value_ints = [-1, {heads}, {dim}]> ()",
        f"kv_shape = Constant <value_ints = [-1, {kv_heads}, {dim}]> ()",
        "q_heads = Reshape (q, q_shape)",
        "k_heads = Reshape (k, kv_shape)",
        "v_heads = Reshape (v, kv_shape)",
    ]


def _rotations(a: Attributes, inputs: Sequence[str]) -> list[str]:
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


def _locate_rows() -> list[str]:
    """position [T] of each row in its request, and tables [T, max_pages], its request's pages."""
    return [
        "starts = Cast <to = 7> (query_start)",
        "contexts = Cast <to = 7> (context_len)",
        "all_tables = Cast <to = 7> (page_table)",
        "one = Constant <value_ints = [1]> ()",
        "far = Constant <value_ints = [2147483647]> ()",
        "ends = Slice (starts, one, far)",
        "t0 = Shape <start = 0, end = 1> (q_heads)",
        "t = Squeeze (t0)",
        "first = Constant <value_int = 0> ()",
        "by_one = Constant <value_int = 1> ()",
        "row = Range (first, t, by_one)",
        "row_column = Unsqueeze (row, one)",
        "is_behind = GreaterOrEqual (row_column, ends)",  # [T, B]
        "behind = Cast <to = 7> (is_behind)",
        "request = ReduceSum <keepdims = 0> (behind, one)",  # requests that end at or before the row
        "end = Gather (ends, request)",
        "context = Gather (contexts, request)",
        "rows_left = Sub (end, row)",
        "position = Sub (context, rows_left)",
        "tables = Gather (all_tables, request)",
    ]


def _write_pages(a: Attributes) -> list[str]:
    """kv_pages_out, and the same as float: keys and values [num_pages, page_size, kv_heads, head_dim]."""
    kv_heads, dim, size = int(a["kv_heads"]), int(a["head_dim"]), int(a[PAGE_SIZE_ATTRIBUTE])
    return [
        f"size = Constant <value_int = {size}> ()",
        "page_index = Div (position, size)",
        "index_in_page = Mod (position, size)",
        "page_index_column = Unsqueeze (page_index, one)",
        "page = GatherElements <axis = 1> (tables, page_index_column)",
        "in_page = Unsqueeze (index_in_page, one)",
        "target = Concat <axis = 1> (page, in_page)",  # [T, 2]
        "pool = Cast <to = 1> (kv_pages)",
        "old_key_plane = Gather <axis = 0> (pool, first)",
        "old_value_plane = Gather <axis = 0> (pool, by_one)",
        f"key_shape = Constant <value_ints = [-1, {kv_heads}, {dim}, {size}]> ()",
        f"value_shape = Constant <value_ints = [-1, {kv_heads}, {size}, {dim}]> ()",
        "old_keys_transposed = Reshape (old_key_plane, key_shape)",
        "old_values_by_head = Reshape (old_value_plane, value_shape)",
        "old_keys = Transpose <perm = [0, 3, 1, 2]> (old_keys_transposed)",
        "old_values = Transpose <perm = [0, 2, 1, 3]> (old_values_by_head)",
        "new_keys_cached = CastLike (k_turned, kv_pages)",  # rounded to the cache's dtype before anybody reads them
        "new_values_cached = CastLike (v_heads, kv_pages)",
        "new_keys = Cast <to = 1> (new_keys_cached)",
        "new_values = Cast <to = 1> (new_values_cached)",
        "keys = ScatterND (old_keys, target, new_keys)",
        "values = ScatterND (old_values, target, new_values)",
        "keys_transposed = Transpose <perm = [0, 2, 3, 1]> (keys)",
        "values_by_head = Transpose <perm = [0, 2, 1, 3]> (values)",
        f"plane_shape = Constant <value_ints = [1, -1, {kv_heads}, {size * dim}]> ()",
        "key_plane = Reshape (keys_transposed, plane_shape)",
        "value_plane = Reshape (values_by_head, plane_shape)",
        "written = Concat <axis = 0> (key_plane, value_plane)",
        "kv_pages_out = CastLike (written, kv_pages)",
    ]


def _gather_pages(a: Attributes) -> list[str]:
    """keys_of_row and values_of_row [T, max_pages * page_size, kv_heads, head_dim], and key_position [the second]."""
    kv_heads, dim = int(a["kv_heads"]), int(a["head_dim"])
    return [
        "key_pages = Gather <axis = 0> (keys, tables)",
        "value_pages = Gather <axis = 0> (values, tables)",
        f"token_shape = Constant <value_ints = [0, -1, {kv_heads}, {dim}]> ()",
        "keys_of_row = Reshape (key_pages, token_shape)",
        "values_of_row = Reshape (value_pages, token_shape)",
        "length0 = Shape <start = 1, end = 2> (keys_of_row)",
        "length = Squeeze (length0)",
        "key_position = Range (first, length, by_one)",
    ]


def _attend(a: Attributes, inputs: Sequence[str]) -> list[str]:
    """out, from q_turned [T, heads, head_dim], keys_of_row, values_of_row, position [T] and key_position."""
    heads, kv_heads, dim = int(a["heads"]), int(a["kv_heads"]), int(a["head_dim"])
    return [
        f"group_shape = Constant <value_ints = [0, {kv_heads}, {heads // kv_heads}, {dim}]> ()",
        "q_groups = Reshape (q_turned, group_shape)",  # [T, kv_heads, group, head_dim]
        "keys_by_head = Transpose <perm = [0, 2, 3, 1]> (keys_of_row)",
        "values_by_row = Transpose <perm = [0, 2, 1, 3]> (values_of_row)",
        "products = MatMul (q_groups, keys_by_head)",  # [T, kv_heads, group, keys]
        f"scale = Constant <value_float = {float(a['scale'])!r}> ()",
        "scaled = Mul (products, scale)",
        *_softcap(float(a.get("softcap", 0.0))),
        *_visibility(int(a.get("window", 0))),
        "minus_infinity = Constant <value_float = -3.4028234e38> ()",
        "scores = Where (visible, capped, minus_infinity)",
        *_softmax(a, inputs),
        "mixed = MatMul (weights, values_by_row)",
        "out_shape = Shape (q)",
        "out = Reshape (mixed, out_shape)",
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
    heads, kv_heads = int(a["heads"]), int(a["kv_heads"])
    return [
        f"sink_shape = Constant <value_ints = [1, {kv_heads}, {heads // kv_heads}, 1]> ()",
        "sink_of_head = Reshape (sinks, sink_shape)",
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
