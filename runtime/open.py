"""From a bundle folder to a running `Runtime`: engines opened, pools sized, tokenizer and sampler in place.

A folder and settings flow in; the front door of runtime/generate.py flows out. Every check of runtime/preflight.py
comes before the first engine: what cannot run is refused in a second, with what was found, what is needed, what to do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..plugins.contract import GraphFacts
from .bundle import Bundle, open_bundle
from .engine_cpu import CpuEngine
from .generate import Runtime
from .loop import Loop
from .machine import examine_machine
from .opening import KIND, MemoryCheck, Opening, Settings, plan_opening
from .preflight import preflight, require
from .request import RequestOptions
from .sample import Sampler
from .tokenizer import BundleTokenizer

__all__ = ["OpenedBundle", "Settings", "open_runtime"]


@dataclass(frozen=True)
class OpenedBundle:
    """A bundle with its engines running. `defaults` are the request options that the recipe asks for."""

    bundle: Bundle
    runtime: Runtime
    tokenizer: BundleTokenizer
    defaults: RequestOptions


def open_runtime(folder: Path, settings: Settings = Settings()) -> OpenedBundle:  # noqa: B008 (frozen)
    """Open the bundle in `folder` for this machine's CPU.

    Raises: BundleError, NativeLibraryError; PacelineError for settings that fit nothing.
    """
    bundle = open_bundle(folder, settings.digests)
    opening = plan_opening(bundle.manifest, settings)
    memory = None if settings.memory is MemoryCheck.OFF else opening.memory(bundle.manifest)
    require(preflight(bundle.manifest, opening.roles, KIND, examine_machine(), memory))
    tokenizer = BundleTokenizer(bundle)
    engines = [_open_engine(bundle, role, opening, settings) for role in opening.roles]
    loop = Loop(
        engines[0],
        Sampler(),
        draft=engines[1] if len(engines) > 1 else None,
        limits=opening.limits,
        end_ids=_end_ids(bundle.generation_config()),
    )
    return OpenedBundle(bundle, Runtime(loop, tokenizer), tokenizer, opening.defaults)


def _open_engine(bundle: Bundle, role: str, opening: Opening, settings: Settings) -> CpuEngine:
    _, path = bundle.engine(role, KIND)
    facts = _bounded(bundle.role(role).facts, settings)
    return CpuEngine.open(path, facts, opening.num_pages, opening.threads, len(opening.roles))


def _bounded(facts: GraphFacts, settings: Settings) -> GraphFacts:
    """The facts with the longest sequence that was asked for, which no graph depends on."""
    if settings.max_seq_len is None or settings.max_seq_len >= facts.max_positions:
        return facts
    return GraphFacts(**{**vars(facts), "max_positions": settings.max_seq_len})


def _end_ids(generation_config: Mapping[str, object]) -> frozenset[int]:
    ids = generation_config.get("eos_token_id", [])
    return frozenset(ids if isinstance(ids, list) else [])
