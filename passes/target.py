"""What a graph is optimized for. Passes ask the target, or the graph, and never which model they are in."""

from dataclasses import dataclass

from ..plugins.contract import PAGE_SIZE

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """One engine to build.

    `name` is the engine kind ("cpu"); `weights` is the format of the linear layers ("fp32", "bf16", "int8");
    `cache_dtype` is one of `contract.DTYPE_BYTES`; `page_size` counts tokens.
    """

    name: str = "cpu"
    weights: str = "bf16"
    cache_dtype: str = "bfloat16"
    page_size: int = PAGE_SIZE
