"""From a bundle folder to a running `Runtime`: engines opened, pools sized, tokenizer and sampler in place.

A folder and settings flow in; the front door of runtime/generate.py flows out. Whatever the settings leave open comes
from the recipe that the bundle was built with.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..plugins.contract import GraphFacts
from .bundle import Bundle, open_bundle
from .engine_cpu import CpuEngine
from .errors import BundleError
from .generate import Runtime
from .loop import Loop
from .policies import Limits
from .request import DraftMethod, RequestOptions
from .sample import Sampler
from .tokenizer import BundleTokenizer

__all__ = ["OpenedBundle", "Settings", "open_runtime"]

KIND = "cpu"


@dataclass(frozen=True)
class Settings:
    """What the opener decides; None takes the bundle's own setting.

    `kv_cache_bytes` bounds the page pools of target and draft together; `threads` defaults to the usable cores.
    """

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_seq_len: int | None = None
    kv_cache_bytes: int | None = None
    threads: int | None = None
    drafting: DraftMethod | None = None
    num_draft_tokens: int | None = None


@dataclass(frozen=True)
class OpenedBundle:
    """A bundle with its engines running. `defaults` are the request options that the recipe asks for."""

    bundle: Bundle
    runtime: Runtime
    tokenizer: BundleTokenizer
    defaults: RequestOptions


def open_runtime(folder: Path, settings: Settings = Settings()) -> OpenedBundle:
    """Open the bundle in `folder` for this machine's CPU.

    Raises: BundleError, NativeLibraryError; PacelineError for settings that fit nothing.
    """
    bundle = open_bundle(folder)
    recipe = bundle.manifest.recipe
    defaults = _default_options(recipe, settings)
    limits = _limits(recipe["runtime"], settings, defaults)
    needs_draft = bundle.has_draft and defaults.drafting in (DraftMethod.DRAFT, DraftMethod.AUTO)
    roles = ("target", "draft") if needs_draft else ("target",)
    num_pages = _num_pages(bundle, roles, settings)
    engines = [_open_engine(bundle, role, num_pages, len(roles), settings) for role in roles]
    tokenizer = BundleTokenizer(bundle)
    loop = Loop(
        engines[0],
        Sampler(),
        draft=engines[1] if needs_draft else None,
        limits=limits,
        end_ids=_end_ids(bundle.generation_config()),
    )
    return OpenedBundle(bundle, Runtime(loop, tokenizer), tokenizer, defaults)


def _open_engine(bundle: Bundle, role: str, num_pages: int, num_engines: int, settings: Settings) -> CpuEngine:
    _, path = bundle.engine(role, KIND)
    own = bundle.manifest.recipe["runtime"]["threads"] or len(os.sched_getaffinity(0))
    threads = _chosen(settings.threads, own)
    if threads < 1:
        raise BundleError(f"threads = {threads}", needed="at least 1", do="raise it or leave it out")
    return CpuEngine.open(path, _bounded(bundle.role(role).facts, settings), num_pages, threads, num_engines)


def _chosen(setting: int | None, otherwise: int) -> int:
    """0 is a setting, if a wrong one: it must reach the check that refuses it."""
    return otherwise if setting is None else setting


def _bounded(facts: GraphFacts, settings: Settings) -> GraphFacts:
    """The facts with the longest sequence that was asked for, which no graph depends on."""
    if settings.max_seq_len is None or settings.max_seq_len >= facts.max_positions:
        return facts
    return GraphFacts(**{**vars(facts), "max_positions": settings.max_seq_len})


def _limits(runtime: Mapping[str, Any], settings: Settings, defaults: RequestOptions) -> Limits:
    max_num_batched_tokens = _chosen(settings.max_num_batched_tokens, runtime["max_num_batched_tokens"])
    return Limits(
        max_num_seqs=_chosen(settings.max_num_seqs, runtime["max_num_seqs"]),
        max_num_batched_tokens=max_num_batched_tokens,
        max_chunk_tokens=max_num_batched_tokens,
        max_draft_tokens=max(1, defaults.num_draft_tokens),
    )


def _default_options(recipe: Mapping[str, Any], settings: Settings) -> RequestOptions:
    speculation = recipe["speculation"]
    return RequestOptions(
        drafting=settings.drafting or DraftMethod(speculation["method"]),
        num_draft_tokens=_chosen(settings.num_draft_tokens, speculation["num_speculative_tokens"]),
        lookup_min=speculation["prompt_lookup_min"],
        lookup_max=speculation["prompt_lookup_max"],
    )


def _num_pages(bundle: Bundle, roles: tuple[str, ...], settings: Settings) -> int:
    """Pages that fit into the cache memory, counting the pools of all roles: they share page ids."""
    budget = _chosen(settings.kv_cache_bytes, bundle.manifest.recipe["runtime"]["kv_cache_bytes"])
    page_bytes = sum(bundle.role(role).facts.page_bytes for role in roles)
    if budget < page_bytes:
        raise BundleError(
            f"{budget} bytes of cache memory",
            needed=f"at least {page_bytes}, one page of {' and '.join(roles)}",
            do="raise kv_cache_memory",
        )
    return int(budget // page_bytes)


def _end_ids(generation_config: Mapping[str, object]) -> frozenset[int]:
    ids = generation_config.get("eos_token_id", [])
    return frozenset(ids if isinstance(ids, list) else [])
