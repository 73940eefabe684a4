"""What a graph is optimized for. Passes ask the target, or the graph, and never which model they are in."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ..plugins.contract import PAGE_SIZE
from .calibration import Calibration

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """One engine to build.

    `name` is the engine kind ("cpu"); `weights` is the format of the linear layers, a key of `number_formats.FORMATS`;
    `head` that of the last one, None: as the others; `keep` says formats of modules by pattern, the first that fits;
    `embedding` is the table's ("fp32", "bf16", "fp16"), None: bf16 unless the weights are fp32; `block_size` counts the
    weights that share a scale in blocked formats; `cache_dtype` is one of `contract.DTYPE_BYTES`; `page_size` counts
    tokens; `calibration` holds what was measured, where a format or a smoothing needs it.
    """

    name: str = "cpu"
    weights: str = "bf16"
    head: str | None = None
    keep: tuple[tuple[str, str], ...] = ()
    embedding: str | None = None
    block_size: int = 64
    cache_dtype: str = "bfloat16"
    page_size: int = PAGE_SIZE
    calibration: Calibration = field(default_factory=Calibration)

    def format_of(self, module: str, is_head: bool) -> str:
        """The format of the linear layer `module`."""
        for pattern, name in self.keep:
            if fnmatchcase(module, pattern):
                return name
        return self.head if is_head and self.head is not None else self.weights

    @property
    def float_cache_dtype(self) -> str:
        """The cache's type before `quantize_kv_cache`: what the float32 graph is calibrated and measured with."""
        return "bfloat16" if self.cache_dtype == "float8e4m3fn" else self.cache_dtype

    @property
    def embedding_format(self) -> str:
        """The format of the embedding table."""
        return self.embedding or ("fp32" if self.weights == "fp32" else "bf16")
