"""Opening a bundle: every kind of damage is found before anything is loaded, and named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_bundles import tiny_bundle

from paceline.runtime.bundle import open_bundle
from paceline.runtime.errors import BundleError
from paceline.runtime.manifest import Manifest
from paceline.runtime.open import Settings, open_runtime


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def bundle(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "bundle"))


def edit(path: Path, change: Callable[[dict], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(BundleError) as caught:
        open_bundle(folder)
    for word in words:
        assert word in str(caught.value)


def test_every_single_file_is_guarded(bundle: Path) -> None:
    """Each file in turn: gone, cut short, and with one bit turned."""
    for name in open_bundle(bundle).manifest.files:
        path = bundle / name
        content = path.read_bytes()
        path.unlink()
        refused(bundle, name, "missing")
        path.write_bytes(content[:-1])
        refused(bundle, name, "bytes")
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        refused(bundle, name, "SHA-256")
        path.write_bytes(content)
    open_bundle(bundle)


def test_manifests_that_cannot_be_followed(bundle: Path) -> None:
    manifest = bundle / "manifest.json"
    good = manifest.read_text()
    for text, words in (
        ("", ("manifest.json",)),
        ("{}", ("manifest.json",)),
        ("[1]", ("manifest.json",)),
        (good.replace('"schema_version": 1', '"schema_version": 2'), ("schema version 2", "upgrade")),
        (good.replace('"schema_version": 1', '"schema_version": 0'), ("schema version 0", "build")),
        (good.replace('"source_sha256"', '"source_md5"'), ("source_sha256",)),
    ):
        manifest.write_text(text)
        refused(bundle, *words)
    manifest.unlink()
    refused(bundle, "no manifest.json")
    refused(bundle / "nowhere", "is missing")


def test_a_path_that_leaves_the_bundle_is_refused(bundle: Path) -> None:
    (bundle.parent / "outside.txt").write_text("x")
    entry = {"size_bytes": 1, "sha256": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}
    edit(bundle / "manifest.json", lambda manifest: manifest["files"].update({"../outside.txt": entry}))
    refused(bundle, "outside the bundle")


def test_a_role_or_engine_that_is_not_there_is_named(bundle: Path) -> None:
    opened = open_bundle(bundle)
    with pytest.raises(BundleError, match="one for tensorrt"):
        opened.engine("target", "tensorrt")
    edit(bundle / "manifest.json", lambda manifest: manifest["roles"].pop("draft"))
    assert not open_bundle(bundle).has_draft
    with pytest.raises(BundleError, match="a draft"):
        open_bundle(bundle).role("draft")


def test_a_manifest_survives_the_way_there_and_back(bundle: Path) -> None:
    text = (bundle / "manifest.json").read_text()
    assert Manifest.from_json(text).to_json() == text


def test_settings_that_fit_nothing_are_refused(bundle: Path) -> None:
    for settings, words in (
        (Settings(kv_cache_bytes=100), "one page"),
        (Settings(threads=0), "threads = 0"),
    ):
        with pytest.raises(BundleError, match=words):
            open_runtime(bundle, settings)


def test_draft_and_target_share_the_cache_memory(bundle: Path) -> None:
    from paceline.runtime.request import DraftMethod

    pages = {}
    for method in (DraftMethod.NONE, DraftMethod.DRAFT):
        with open_runtime(bundle, Settings(kv_cache_bytes=1 << 20, drafting=method)).runtime as runtime:
            pages[method] = runtime.loop.pool.num_pages
    sizes = [open_bundle(bundle).role(role).facts.page_bytes for role in ("target", "draft")]
    assert pages[DraftMethod.NONE] == (1 << 20) // sizes[0]
    assert pages[DraftMethod.DRAFT] == (1 << 20) // sum(sizes)
