"""An engine that is another model's is refused by name before buffers are bound to it."""

from dataclasses import replace
from pathlib import Path

import pytest

from paceline.plugins.contract import GraphFacts, LayerCache
from paceline.runtime.bundle import Bundle, open_bundle
from paceline.runtime.engine_cpu import CpuEngine
from paceline.runtime.errors import BundleError


@pytest.fixture(scope="module")
def bundle(tiny_whole: Path) -> Bundle:
    return open_bundle(tiny_whole)


def open_with(bundle: Bundle, facts: GraphFacts) -> CpuEngine:
    return CpuEngine.open(bundle.engine("target", "cpu")[1], facts, 4, threads=1)


def test_the_facts_of_the_build_fit(bundle: Bundle) -> None:
    open_with(bundle, bundle.role("target").facts)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"vocab_size": 273}, "logits"),
        ({"page_size": 32}, "kv_pages.0"),
        ({"cache_dtype": "float32"}, "kv_pages.0"),
        ({"layers": (LayerCache(2, 16),) * 4}, "kv_pages.3"),
        ({"layers": (LayerCache(2, 16),) * 2}, "has kv_pages.2"),
        ({"layers": (LayerCache(2, 16), LayerCache(2, 16), LayerCache(4, 16))}, "kv_pages.2"),
    ],
)
def test_other_facts_are_refused(bundle: Bundle, change: dict[str, object], name: str) -> None:
    with pytest.raises(BundleError, match=f"{name}.*as the manifest says"):
        open_with(bundle, replace(bundle.role("target").facts, **change))
