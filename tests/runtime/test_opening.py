"""What an opening comes to, as numbers, and settings that no opening can have."""

from pathlib import Path

import pytest
from manifest_edits import edit_manifest

from paceline.runtime.bundle import open_bundle, read_manifest
from paceline.runtime.errors import BundleError, PacelineError
from paceline.runtime.open import open_runtime
from paceline.runtime.opening import MemoryCheck, Opening, Settings, plan_opening
from paceline.runtime.request import DraftMethod


def opening_of(bundle: Path, settings: Settings = Settings()) -> Opening:  # noqa: B008 (frozen)
    return plan_opening(open_bundle(bundle).manifest, settings)


def test_the_recipe_decides_what_the_settings_leave_open(tiny_whole: Path) -> None:
    opening = opening_of(tiny_whole)
    assert opening.roles == ("target",)
    assert (opening.limits.max_num_seqs, opening.limits.max_num_batched_tokens) == (32, 512)
    assert opening.num_pages == (512 << 20) // open_bundle(tiny_whole).role("target").facts.page_bytes


def test_the_settings_decide(tiny_whole: Path) -> None:
    opening = opening_of(tiny_whole, Settings(max_num_seqs=3, threads=2, kv_cache_bytes=1 << 20, num_draft_tokens=7))
    assert (opening.limits.max_num_seqs, opening.threads, opening.limits.max_draft_tokens) == (3, 2, 7)
    assert opening.num_pages == (1 << 20) // open_bundle(tiny_whole).role("target").facts.page_bytes


def test_a_draft_takes_its_share_of_the_cache_and_its_weights_count(tiny_whole: Path) -> None:
    manifest = open_bundle(tiny_whole).manifest
    alone, both = (opening_of(tiny_whole, Settings(drafting=method)) for method in (DraftMethod.NONE, DraftMethod.AUTO))
    assert both.roles == ("target", "draft")
    assert both.num_pages < alone.num_pages
    assert both.memory(manifest).weights_bytes > alone.memory(manifest).weights_bytes


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(kv_cache_bytes=100), "one page"),
        (Settings(threads=0), "threads = 0"),
        (Settings(threads=100_000), "at most 1024"),
        (Settings(max_num_seqs=0), "max_num_seqs = 0"),
    ],
)
def test_settings_that_fit_nothing(tiny_whole: Path, settings: Settings, words: str) -> None:
    with pytest.raises(PacelineError, match=words):
        opening_of(tiny_whole, settings)


@pytest.mark.parametrize(
    ("part", "key", "value", "words"),
    [
        ("runtime", "threads", "two", "recipe.runtime.threads: str"),
        ("runtime", "max_num_seqs", None, "recipe.runtime.max_num_seqs: NoneType"),
        ("speculation", "method", "magic", "magic"),
        ("speculation", "prompt_lookup_min", -1, "prompt_lookup_min: -1"),
    ],
)
def test_a_recipe_that_no_build_would_write(tiny_copy: Path, part: str, key: str, value: object, words: str) -> None:
    edit_manifest(tiny_copy, lambda manifest: manifest["recipe"][part].update({key: value}))
    with pytest.raises(BundleError, match=words):
        plan_opening(read_manifest(tiny_copy), Settings())


def test_too_little_memory_is_refused_before_anything_is_loaded_and_can_be_overridden(
    tiny_whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening with 512 MiB of cache used to begin, and the kernel ended it."""
    import paceline.runtime.machine as machine
    import paceline.runtime.open as opens

    monkeypatch.setattr(machine, "available_bytes", lambda root: 300 << 20)
    monkeypatch.setattr(opens, "CpuEngine", None)  # nothing may be opened
    with pytest.raises(BundleError, match=r"300 MiB can still be taken.*lower kv_cache_memory to 29\d MiB"):
        open_runtime(tiny_whole)
    monkeypatch.undo()
    monkeypatch.setattr(machine, "available_bytes", lambda root: 300 << 20)
    with open_runtime(tiny_whole, Settings(memory=MemoryCheck.OFF)).runtime:
        pass
    with open_runtime(tiny_whole, Settings(kv_cache_bytes=100 << 20)).runtime:
        pass
