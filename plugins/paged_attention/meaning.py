"""What attention means, in standard ops: the oracle of every kernel, and what a stock onnxruntime runs.

A node's attributes and the optional inputs that it has flow in; an ONNX function flows out, in the ONNX text syntax.
There is one function per combination (ONNX overloads): a body cannot ask whether an optional input is there. Speed is
no aim here; the kernel is for that.
"""

from collections.abc import Sequence

from .attend_text import mix, mix_in_cache_type, score
from .rotate_text import rotations
from .schema import ATTENTION, ATTRIBUTES, PAGE_SIZE_ATTRIBUTE, PAGED_ATTENTION, Attributes

__all__ = ["attention_text", "paged_attention_text"]


def attention_text(attributes: Attributes, inputs: Sequence[str]) -> str:
    """The function `Attention` for these attributes and these (present) inputs, as ONNX text."""
    body = [
        *_split_heads(attributes, inputs),
        *rotations(attributes, inputs),
        "t0 = Shape <start = 0, end = 1> (q_heads)",
        "t = Squeeze (t0)",
        "first = Constant <value_int = 0> ()",
        "by_one = Constant <value_int = 1> ()",
        "position = Range (first, t, by_one)",
        "key_position = Identity (position)",
        "zero_axis = Constant <value_ints = [0]> ()",
        "keys_of_row = Unsqueeze (k_turned, zero_axis)",  # [1, T, kv_heads, head_dim]: every row sees the same keys
        "values_of_row = Unsqueeze (v_heads, zero_axis)",
        *score("q_turned", attributes),
        *mix(attributes, inputs),
    ]
    return _function(ATTENTION, inputs, ["out"], ATTRIBUTES, body)


def paged_attention_text(attributes: Attributes, inputs: Sequence[str]) -> str:
    """The function `PagedAttention` for these attributes and these (present) inputs, as ONNX text."""
    body = [
        *_split_heads(attributes, inputs),
        *rotations(attributes, inputs),
        *_locate_rows(),
        *_operand_type(inputs),
        *_round_queries(),
        *_write_pages(attributes, inputs),
        *_gather_pages(attributes, inputs),
        *score("q_rounded", attributes),
        *mix_in_cache_type(attributes, inputs),
    ]
    return _function(PAGED_ATTENTION, inputs, ["out", "kv_pages_out"], [*ATTRIBUTES, PAGE_SIZE_ATTRIBUTE], body)


def _function(
    name: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Sequence[str], body: Sequence[str]
) -> str:
    lines = "\n".join(f"    {line}" for line in body)
    head = f"{name} <{', '.join(attributes)}> ({', '.join(inputs)}) => ({', '.join(outputs)})"
    return f'<domain: "paceline", opset_import: ["" : 23]>\n{head} {{\n{lines}\n}}\n'


def _split_heads(a: Attributes, inputs: Sequence[str]) -> list[str]:
    """q_heads [T, heads, head_dim]; k_heads and v_heads [T, kv_heads, head_dim]; q_rows, of the output's shape."""
    heads, kv_heads, dim = int(a["heads"]), int(a["kv_heads"]), int(a["head_dim"])
    if "k" in inputs:
        rows = ["q_rows = Identity (q)", "k_rows = Identity (k)", "v_rows = Identity (v)"]
    else:
        rows = [
            f"widths = Constant <value_ints = [{heads * dim}, {kv_heads * dim}, {kv_heads * dim}]> ()",
            "q_rows, k_rows, v_rows = Split <axis = -1> (q, widths)",
        ]
    return [
        *rows,
        f"q_shape = Constant <value_ints = [-1, {heads}, {dim}]> ()",
        f"kv_shape = Constant <value_ints = [-1, {kv_heads}, {dim}]> ()",
        "q_heads = Reshape (q_rows, q_shape)",
        "k_heads = Reshape (k_rows, kv_shape)",
        "v_heads = Reshape (v_rows, kv_shape)",
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


def _is_scaled(inputs: Sequence[str]) -> bool:
    """Whether the cache holds small numbers, to be multiplied with scales."""
    return "k_scale" in inputs


def _operand_type(inputs: Sequence[str]) -> list[str]:
    """operand: a value of the type that queries and weights are rounded to."""
    if not _is_scaled(inputs):
        return ["operand = Identity (kv_pages)"]
    return ["no_number = Constant <value_float = 0.0> ()", "operand = Cast <to = 16> (no_number)"]


def _round_queries() -> list[str]:
    """q_rounded: to the operands' type, which is the keys' where they have no scale."""
    return ["q_in_operand_type = CastLike (q_turned, operand)", "q_rounded = Cast <to = 1> (q_in_operand_type)"]


def _write_pages(a: Attributes, inputs: Sequence[str]) -> list[str]:
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
        *_in_steps(inputs),
        "new_keys_cached = CastLike (k_steps, kv_pages)",  # rounded to the cache's dtype before anybody reads them
        "new_values_cached = CastLike (v_steps, kv_pages)",
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


def _in_steps(inputs: Sequence[str]) -> list[str]:
    if not _is_scaled(inputs):
        return ["k_steps = Identity (k_turned)", "v_steps = Identity (v_heads)"]
    return ["k_steps = Div (k_turned, k_scale)", "v_steps = Div (v_heads, v_scale)"]


def _gather_pages(a: Attributes, inputs: Sequence[str]) -> list[str]:
    """keys_of_row and values_of_row [T, max_pages * page_size, kv_heads, head_dim], and key_position [the second]."""
    kv_heads, dim = int(a["kv_heads"]), int(a["head_dim"])
    return [
        "key_pages = Gather <axis = 0> (keys, tables)",
        "value_pages = Gather <axis = 0> (values, tables)",
        f"token_shape = Constant <value_ints = [0, -1, {kv_heads}, {dim}]> ()",
        "key_steps = Reshape (key_pages, token_shape)",
        "value_steps = Reshape (value_pages, token_shape)",
        *_out_of_steps(inputs),
        "length0 = Shape <start = 1, end = 2> (keys_of_row)",
        "length = Squeeze (length0)",
        "key_position = Range (first, length, by_one)",
    ]


def _out_of_steps(inputs: Sequence[str]) -> list[str]:
    if not _is_scaled(inputs):
        return ["keys_of_row = Identity (key_steps)", "values_of_row = Identity (value_steps)"]
    return ["keys_of_row = Mul (key_steps, k_scale)", "values_of_row = Mul (value_steps, v_scale)"]
