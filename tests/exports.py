"""The tiny models of each family, exported once a test run: exporting takes seconds, and several files start there.

`export_of("qwen3")` gives the checkpoint and a fresh copy of its exported graph, which the caller may edit.
"""

import functools

from tiny_models import FAMILIES, MORE_FAMILIES, RandomCheckpoint

from paceline.passes.target import Target
from paceline.toolchain.export import ExportedModel, export_model

__all__ = ["TARGET", "export_of"]

TARGET = Target(cache_dtype="float32", page_size=4)


def export_of(family: str) -> tuple[RandomCheckpoint, ExportedModel]:
    """The random checkpoint of `family` (shared: leave it as it is) and its exported model (a copy of your own)."""
    checkpoint, exported = _exported(family)
    return checkpoint, ExportedModel(exported.model.clone(), exported.facts)


@functools.cache
def _exported(family: str) -> tuple[RandomCheckpoint, ExportedModel]:
    checkpoint = RandomCheckpoint({**FAMILIES, **MORE_FAMILIES}[family])
    return checkpoint, export_model(checkpoint, TARGET)
