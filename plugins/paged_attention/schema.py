"""Names of the two attention ops; what export and passes write, the kernel reads and the meaning spells out.

    Attention     (q, k, v,                                                 cos_sin?, sinks?) -> out
    PagedAttention(q, k, v, kv_pages, page_table, query_start, context_len, cos_sin?, sinks?, k_scale?, v_scale?)
                                                                                                -> (out, kv_pages_out)

q, out float32 [..., T, heads * head_dim]; k, v float32 [..., T, kv_heads * head_dim]; cos_sin float32 [T, rotary_dim],
cosines then sines; sinks float32 [heads]; the rest as plugins/contract.py says. `Attention` takes its T rows as one
sequence from position 0; `PagedAttention` as rows of several requests, each behind what its pages already hold. Where
`PagedAttention` has neither k nor v, the rows of q hold all three side by side: [..., T, (heads + 2 kv_heads) *
head_dim]. It rounds to the cache's dtype whatever meets the cache: keys and values, rotated queries, and softmax
weights before they are divided by their sum. A cache of E4M3 has two scales, float32 [1], that its numbers are to be
multiplied with; queries and weights are then rounded to bfloat16.
"""

from collections.abc import Mapping

__all__ = [
    "ATTENTION",
    "ATTENTION_INPUTS",
    "ATTRIBUTES",
    "PAGED_ATTENTION",
    "PAGED_ATTENTION_INPUTS",
    "PAGE_SIZE_ATTRIBUTE",
    "Attributes",
]

Attributes = Mapping[str, float]  # of a node: sizes and flags are whole numbers

ATTENTION = "Attention"
PAGED_ATTENTION = "PagedAttention"
ATTENTION_INPUTS = ("q", "k", "v", "cos_sin", "sinks")
PAGED_ATTENTION_INPUTS = (
    "q",
    "k",
    "v",
    "kv_pages",
    "page_table",
    "query_start",
    "context_len",
    "cos_sin",
    "sinks",
    "k_scale",
    "v_scale",
)

# heads, kv_heads, head_dim: sizes; scale: of the scores; window: keys that a query sees, 0 for all;
# softcap: 0 for none; layer: which one; rotary_dim: elements of a head that turn;
# interleaved: 1 turns neighbours, 0 the two halves.
ATTRIBUTES = (
    "heads",
    "kv_heads",
    "head_dim",
    "scale",
    "window",
    "softcap",
    "layer",
    "rotary_dim",
    "interleaved",
)
PAGE_SIZE_ATTRIBUTE = "page_size"
