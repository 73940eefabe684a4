"""What a running bundle takes: weights, pages, logits, the engines' workspace, the process itself.

A recipe, the sizes of its models and of its tokenizer flow in; a `RunForecast` flows out, term by term, as resident
memory once everything has been touched: each weight read, each page written, one step as large as the limits allow.
Trying it out by opening the bundle was the alternative and lost: there is no bundle yet. docs/plan.md explains every
term; benchmarks/plan_accuracy.py measures them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..passes.number_formats import FORMATS
from ..passes.target import Target
from ..plugins.contract import DTYPE_BYTES
from ..runtime.pages import num_pages_for
from .build import target_of
from .model_shape import ModelShape
from .recipe import Recipe
from .weight_formats import packed_bytes

__all__ = ["FLOAT_BYTES", "TOKENIZER_FACTOR", "RunForecast", "engine_tensors", "forecast_run", "table_bytes"]

FLOAT_BYTES = 4
PROCESS_BYTES = 77 << 20  # Python, NumPy, onnxruntime 1.32, our kernels, two threads; measured with an empty tokenizer
TOKENIZER_FACTOR = 30  # of tokenizer.json in memory: 45 MiB of 1.5 MB for SmolLM2's 49k tokens and merges
HIDDEN_ROWS = 4  # rows of the hidden size alive at once: two of the residual sum, the norm, attention's result
WIDE_ROWS = 2  # rows of the widest layer alive at once: its input or gate, and its output
ARENA_FACTOR = 2  # onnxruntime's arena grows by powers of two; measured 20 to 26 MiB where 10.5 are alive


@dataclass(frozen=True)
class RunForecast:
    """Bytes by where they come from. `weights_bytes` and `page_bytes` are by role: a page has a part in each pool."""

    weights_bytes: Mapping[str, int]
    page_bytes: Mapping[str, int]
    num_pages: int
    logits_bytes: int
    arena_bytes: int
    process_bytes: int
    page_size: int
    longest_tokens: int

    @property
    def bytes_a_page(self) -> int:
        """Of one page in all pools: target and draft share page ids."""
        return sum(self.page_bytes.values())

    @property
    def cache_bytes(self) -> int:
        """All pools together."""
        return self.num_pages * self.bytes_a_page

    @property
    def total_bytes(self) -> int:
        """Everything."""
        parts = (self.cache_bytes, self.logits_bytes, self.arena_bytes, self.process_bytes)
        return sum(self.weights_bytes.values()) + sum(parts)

    @property
    def pages_of_longest(self) -> int:
        """Pages that one request of the longest length needs."""
        return num_pages_for(self.longest_tokens, self.page_size)

    def num_requests(self, num_tokens: int) -> int:
        """How many requests of `num_tokens` (prompt and output) the pools hold at once."""
        return self.num_pages // num_pages_for(num_tokens, self.page_size)


def forecast_run(recipe: Recipe, shapes: Mapping[str, ModelShape], tokenizer_bytes: int) -> RunForecast:
    """The forecast for the engines that `recipe` opens: a draft counts only where its method needs it."""
    roles = ("target", "draft") if recipe.opens_draft else ("target",)
    target = target_of(recipe)
    page_bytes = {role: _page_bytes(shapes[role], target) for role in roles}
    return RunForecast(
        weights_bytes={role: sum(engine_tensors(shapes[role], target)) for role in roles},
        page_bytes=page_bytes,
        num_pages=recipe.kv_cache_bytes // sum(page_bytes.values()),
        logits_bytes=sum(_logits_bytes(role, shapes[role], recipe) for role in roles),
        arena_bytes=sum(_arena_bytes(shapes[role], recipe.runtime.max_num_batched_tokens) for role in roles),
        process_bytes=PROCESS_BYTES + TOKENIZER_FACTOR * tokenizer_bytes,
        page_size=recipe.kv_cache.page_size,
        longest_tokens=recipe.runtime.max_seq_len or shapes["target"].max_positions,
    )


def engine_tensors(shape: ModelShape, target: Target) -> list[int]:
    """Bytes of what an engine's weights consist of: packed matrices, embedding tables; norms and biases as one."""
    matrices = [
        packed_bytes(one.in_features, one.out_features, target.format_of(one.module, one.is_head))
        for one in shape.matrices
    ]
    return [*table_bytes(shape, target), *matrices, shape.vector_elements * FLOAT_BYTES]


def table_bytes(shape: ModelShape, target: Target) -> list[int]:
    """Bytes of each embedding table."""
    bits = FORMATS[target.embedding_format].weight_bits
    return [rows * columns * bits // 8 for rows, columns in shape.tables]


def _page_bytes(shape: ModelShape, target: Target) -> int:
    """As `GraphFacts.page_bytes`: keys and values of one page over all layers."""
    elements = sum(2 * layer.kv_heads * layer.head_dim for layer in shape.layers)
    return elements * target.page_size * DTYPE_BYTES[target.cache_dtype]


def _logits_bytes(role: str, shape: ModelShape, recipe: Recipe) -> int:
    """The largest buffer of logits: the target checks K guesses and one row more a request, a draft makes one row."""
    guesses = 0 if role == "draft" or recipe.speculation.method == "none" else recipe.speculation.num_speculative_tokens
    rows = min(recipe.runtime.max_num_seqs * (1 + guesses), recipe.runtime.max_num_batched_tokens)
    return rows * shape.vocab_size * FLOAT_BYTES


def _arena_bytes(shape: ModelShape, num_rows: int) -> int:
    """What lies between two ops of the largest step, in an arena that grows by powers of two."""
    inner = [one for one in shape.matrices if not one.is_head]
    widest = max((max(one.in_features, one.out_features) for one in inner), default=shape.hidden_size)
    return ARENA_FACTOR * num_rows * (HIDDEN_ROWS * shape.hidden_size + WIDE_ROWS * widest) * FLOAT_BYTES
