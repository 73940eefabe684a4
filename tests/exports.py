"""The tiny models of each family, exported once a test run: exporting takes seconds, and several files start there.

`export_of("qwen3")` gives the checkpoint and a fresh copy of its exported graph, which the caller may edit;
`refusal_of("bloom")` gives the error with which a family is refused.
"""

import functools

from tiny_families import MORE_REFUSED, REFUSED
from tiny_models import FAMILIES, MORE_FAMILIES, RandomCheckpoint, UnreadCheckpoint

from paceline.passes.target import Target
from paceline.toolchain.errors import ArchitectureError
from paceline.toolchain.export import ExportedModel, export_model

__all__ = ["TARGET", "export_of", "refusal_of"]

TARGET = Target(cache_dtype="float32", page_size=4)


def export_of(family: str) -> tuple[RandomCheckpoint, ExportedModel]:
    """The random checkpoint of `family` (shared: leave it as it is) and its exported model (a copy of your own)."""
    checkpoint, exported = _exported(family)
    return checkpoint, ExportedModel(exported.model.clone(), exported.facts)


@functools.cache
def _exported(family: str) -> tuple[RandomCheckpoint, ExportedModel]:
    checkpoint = RandomCheckpoint({**FAMILIES, **MORE_FAMILIES}[family])
    return checkpoint, export_model(checkpoint, TARGET)


@functools.cache
def refusal_of(family: str) -> ArchitectureError:
    """The error that exporting this family raises; AssertionError if it raises none."""
    config, _ = {**REFUSED, **MORE_REFUSED}[family]
    try:
        export_model(UnreadCheckpoint(config), TARGET)
    except ArchitectureError as error:
        return error
    raise AssertionError(f"{family} is exported")
