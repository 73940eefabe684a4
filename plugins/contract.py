"""The graph contract: every name, dtype and shape that crosses a graph's border, typed once.

Export, passes, plugins and runtime all read these names from here; none of them spells one out. What flows in is a
*step*: all tokens that are computed now, back to back, whoever they belong to (token-major, ragged). There is no
prefill graph and no decode graph. A padded [batch, sequence] form lost because padding costs time at every ragged step.

    input_ids    int64 [T]                 new tokens, request after request
    positions    int64 [T]                 position of each token in its own sequence
    query_start  int32 [B+1]               where each request's rows begin; query_start[B] == T
    context_len  int32 [B]                 tokens in the cache after this step
    page_table   int32 [B, max_pages]      page ids of each request, in order; unused entries are 0
    logit_rows   int64 [R]                 rows whose logits are wanted
    kv_pages.i   cache dtype [2, num_pages, kv_heads, page_size * head_dim]   layer i's pool, updated in place
    logits       float32 [R, vocab]        out
    hidden       float32 [R, hidden]       out, only where a draft needs it

Inside a page the keys (plane 0) lie transposed, [head_dim, page_size], and the values (plane 1) lie row by row,
[page_size, head_dim]: the attention kernel then reads both with unit stride.
"""

from dataclasses import dataclass

__all__ = [
    "CONTEXT_LEN",
    "DOMAIN",
    "DTYPE_BYTES",
    "HIDDEN",
    "INPUT_IDS",
    "LOGITS",
    "LOGIT_ROWS",
    "OPSET_VERSION",
    "PAGE_SIZE",
    "PAGE_TABLE",
    "POSITIONS",
    "QUERY_START",
    "GraphFacts",
    "LayerCache",
    "is_kv_pages",
    "kv_pages_in",
    "kv_pages_out",
]

DOMAIN = "paceline"
OPSET_VERSION = 23  # of the standard domain, in every graph we emit

INPUT_IDS = "input_ids"
POSITIONS = "positions"
QUERY_START = "query_start"
CONTEXT_LEN = "context_len"
PAGE_TABLE = "page_table"
LOGIT_ROWS = "logit_rows"
LOGITS = "logits"
HIDDEN = "hidden"

PAGE_SIZE = 16  # tokens in a page: one 512-bit vector of float32 scores per page and query row
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8e4m3fn": 1}


def kv_pages_in(layer_id: int) -> str:
    """Name of layer `layer_id`'s page pool as a graph input."""
    return f"kv_pages.{layer_id}"


def kv_pages_out(layer_id: int) -> str:
    """Name of the same pool as a graph output; the runtime binds both names to one buffer."""
    return f"kv_pages_out.{layer_id}"


def is_kv_pages(name: str) -> bool:
    """Whether `name` is that of a page pool, going in or coming out."""
    return name.startswith((kv_pages_in(0)[:-1], kv_pages_out(0)[:-1]))


@dataclass(frozen=True)
class LayerCache:
    """What one attention layer keeps per token: `2 * kv_heads * head_dim` elements."""

    kv_heads: int
    head_dim: int


@dataclass(frozen=True)
class GraphFacts:
    """What a runtime must know of a graph to drive it; stored in the bundle's manifest.

    `vocab_size` counts the columns of `logits`; `max_positions` is the longest sequence in tokens;
    `cache_dtype` is one of `DTYPE_BYTES`; `layers` has one entry per `kv_pages.i`, in order.
    """

    vocab_size: int
    hidden_size: int
    max_positions: int
    page_size: int
    cache_dtype: str
    layers: tuple[LayerCache, ...]

    @property
    def page_bytes(self) -> int:
        """Bytes that one page takes over all layers, keys and values together."""
        elements = sum(2 * layer.kv_heads * layer.head_dim for layer in self.layers)
        return elements * self.page_size * DTYPE_BYTES[self.cache_dtype]

    def pool_shape(self, layer_id: int, num_pages: int) -> tuple[int, int, int, int]:
        """Shape of `kv_pages.{layer_id}` for a pool of `num_pages` pages."""
        layer = self.layers[layer_id]
        return (2, num_pages, layer.kv_heads, self.page_size * layer.head_dim)
