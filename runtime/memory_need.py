"""How much memory a bundle takes while it runs: weights, page pools, and what a step leaves between the layers.

A manifest and the limits of the opening flow in; bytes by part flow out. The interpreter and its libraries are not
counted: they are loaded by the time that anybody asks. Kernels' own scratch space is not either (a few MiB a thread).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .manifest import EngineEntry, Manifest
from .policies import Limits

__all__ = ["MemoryNeed", "memory_need", "weights_bytes"]

MIB = 1 << 20
LOGIT_BYTES = 4


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes by part, over all engines that are opened."""

    weights_bytes: int
    cache_bytes: int
    activation_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.weights_bytes + self.cache_bytes + self.activation_bytes

    def as_text(self) -> str:
        """For a message."""
        parts = (
            (self.weights_bytes, "weights"),
            (self.cache_bytes, "cache"),
            (self.activation_bytes, "activations"),
        )
        return f"{self.total_bytes / MIB:.0f} MiB: " + " + ".join(f"{size / MIB:.0f} {name}" for size, name in parts)


def memory_need(manifest: Manifest, roles: Sequence[str], kind: str, num_pages: int, limits: Limits) -> MemoryNeed:
    """The need of `roles` on engines of `kind`, each with a pool of `num_pages` pages; absent engines count nothing."""
    weights = cache = activations = 0
    for name in roles:
        role = manifest.roles[name]
        engine = role.engines.get(kind)
        if engine is not None:
            weights += weights_bytes(manifest, engine)
            cache += num_pages * role.facts.page_bytes
            rows = limits.max_num_seqs * (1 + limits.max_draft_tokens)
            logits = min(rows, limits.max_num_batched_tokens) * role.facts.vocab_size * LOGIT_BYTES
            activations += engine.row_bytes * limits.max_num_batched_tokens + logits
    return MemoryNeed(weights, cache, activations)


def weights_bytes(manifest: Manifest, engine: EngineEntry) -> int:
    """Bytes of the files behind an engine: the one that is opened and what lies beside it under the same name."""
    return sum(entry.size_bytes for name, entry in manifest.files.items() if name.startswith(engine.path))
