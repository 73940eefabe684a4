"""What opening a bundle comes to, before anything is opened: which engines, how many pages, which limits.

A bundle's manifest and settings flow in; an `Opening` flows out, pure numbers. `paceline doctor BUNDLE` asks the same
and stops there. Whatever the settings leave open comes from the recipe that the bundle was built with.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from .bundle_files import DigestCheck
from .errors import BundleError
from .manifest import MANIFEST, Manifest
from .memory_need import MemoryNeed, memory_need
from .policies import Limits
from .request import DraftMethod, RequestOptions
from .typed_json import value_from_json

__all__ = ["KIND", "MemoryCheck", "Opening", "Settings", "plan_opening"]

KIND = "cpu"
MOST_THREADS = 1024  # more than any machine has processors, fewer than a typing error


class MemoryCheck(StrEnum):
    """What happens when there is less memory than a bundle needs: `REFUSE` to open it, or go ahead with it `OFF`."""

    REFUSE = "refuse"
    OFF = "off"


@dataclass(frozen=True)
class Settings:
    """What the opener decides; None takes the bundle's own setting.

    `kv_cache_bytes` bounds the page pools of target and draft together; `threads` defaults to the usable cores.
    `digests` may leave hashing out on a restart where files were hashed before; sizes are compared all the same.
    """

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_seq_len: int | None = None
    kv_cache_bytes: int | None = None
    threads: int | None = None
    drafting: DraftMethod | None = None
    num_draft_tokens: int | None = None
    digests: DigestCheck = DigestCheck.FULL
    memory: MemoryCheck = MemoryCheck.REFUSE


@dataclass(frozen=True)
class Opening:
    """Roles to open, target first; pages in each one's pool; threads of each engine."""

    roles: tuple[str, ...]
    num_pages: int
    threads: int
    limits: Limits
    defaults: RequestOptions

    def memory(self, manifest: Manifest) -> MemoryNeed:
        """What it will take."""
        return memory_need(manifest, self.roles, KIND, self.num_pages, self.limits)


@dataclass(frozen=True)
class RecipeRuntime:
    """The part of a recipe under `runtime` that opening reads."""

    max_num_seqs: int
    max_num_batched_tokens: int
    kv_cache_bytes: int
    threads: int | None


@dataclass(frozen=True)
class RecipeSpeculation:
    """The part under `speculation`."""

    method: str
    num_speculative_tokens: int
    prompt_lookup_min: int
    prompt_lookup_max: int


def plan_opening(manifest: Manifest, settings: Settings) -> Opening:
    """The opening of a bundle with this manifest. Raises: BundleError; PacelineError for settings that fit nothing."""
    runtime = _part(RecipeRuntime, manifest.recipe, "runtime")
    defaults = _default_options(_part(RecipeSpeculation, manifest.recipe, "speculation"), settings)
    drafts = "draft" in manifest.roles and defaults.drafting in (DraftMethod.DRAFT, DraftMethod.AUTO)
    roles = ("target", "draft") if drafts else ("target",)
    return Opening(
        roles=roles,
        num_pages=_num_pages(manifest, roles, _chosen(settings.kv_cache_bytes, runtime.kv_cache_bytes)),
        threads=_num_threads(runtime, settings),
        limits=_limits(runtime, settings, defaults),
        defaults=defaults,
    )


def _part(kind: type[Any], recipe: Mapping[str, Any], name: str) -> Any:
    """One part of the recipe, with the keys that `kind` knows."""
    try:
        raw = recipe.get(name)
        known = {field.name for field in fields(kind)}
        chosen = {key: raw[key] for key in known & raw.keys()} if isinstance(raw, dict) else raw
        return value_from_json(kind, chosen, f"recipe.{name}")
    except ValueError as error:
        raise _damaged(str(error)) from None


def _default_options(speculation: RecipeSpeculation, settings: Settings) -> RequestOptions:
    try:
        method = settings.drafting or DraftMethod(speculation.method)
    except ValueError as error:
        raise _damaged(f"recipe.speculation.method: {error}") from None
    return RequestOptions(
        drafting=method,
        num_draft_tokens=_chosen(settings.num_draft_tokens, speculation.num_speculative_tokens),
        lookup_min=speculation.prompt_lookup_min,
        lookup_max=speculation.prompt_lookup_max,
    )


def _limits(runtime: RecipeRuntime, settings: Settings, defaults: RequestOptions) -> Limits:
    max_num_batched_tokens = _chosen(settings.max_num_batched_tokens, runtime.max_num_batched_tokens)
    return Limits(
        max_num_seqs=_chosen(settings.max_num_seqs, runtime.max_num_seqs),
        max_num_batched_tokens=max_num_batched_tokens,
        max_chunk_tokens=max_num_batched_tokens,
        max_draft_tokens=max(1, defaults.num_draft_tokens),
    )


def _num_threads(runtime: RecipeRuntime, settings: Settings) -> int:
    threads = _chosen(settings.threads, runtime.threads or len(os.sched_getaffinity(0)))
    if not 1 <= threads <= MOST_THREADS:
        raise BundleError(
            f"threads = {threads}", needed=f"at least 1 and at most {MOST_THREADS}", do="correct it or leave it out"
        )
    return threads


def _num_pages(manifest: Manifest, roles: tuple[str, ...], budget_bytes: int) -> int:
    """Pages that fit into the cache memory, counting the pools of all roles: they share page ids."""
    page_bytes = sum(manifest.roles[role].facts.page_bytes for role in roles)
    if budget_bytes < page_bytes:
        raise BundleError(
            f"{budget_bytes} bytes of cache memory",
            needed=f"at least {page_bytes}, one page of {' and '.join(roles)}",
            do="raise kv_cache_memory",
        )
    return int(budget_bytes // page_bytes)


def _chosen(setting: int | None, otherwise: int) -> int:
    """0 is a setting, if a wrong one: it must reach the check that refuses it."""
    return otherwise if setting is None else setting


def _damaged(what: str) -> BundleError:
    return BundleError(f"{MANIFEST} {what}", needed="a recipe as a build writes it", do="build the bundle again")
