"""Opening a bundle: every kind of damage is found before anything is loaded, and named."""

import os
from pathlib import Path

import pytest
from manifest_edits import edit_manifest

from paceline.runtime.bundle import open_bundle
from paceline.runtime.bundle_files import DigestCheck
from paceline.runtime.errors import BundleError
from paceline.runtime.open import Settings, open_runtime


@pytest.fixture
def bundle(tiny_copy: Path) -> Path:
    return tiny_copy


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(BundleError) as caught:
        open_bundle(folder)
    for word in words:
        assert word in str(caught.value)


def test_every_single_file_is_guarded(bundle: Path, tmp_path: Path) -> None:
    """Each file in turn, the manifest too: gone, cut short, with one bit turned, a link to the very same content."""
    for name in [*open_bundle(bundle).manifest.files, "manifest.json"]:
        path = bundle / name
        content = path.read_bytes()
        path.unlink()
        refused(bundle, name)
        path.write_bytes(content[:-1])
        refused(bundle, name)
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        refused(bundle, name)
        (tmp_path / "elsewhere").write_bytes(content)
        path.unlink()
        path.symlink_to(tmp_path / "elsewhere")
        refused(bundle, name, "symbolic link")
        path.unlink()
        path.write_bytes(content)
    open_bundle(bundle)


def test_every_byte_of_the_manifest_counts(bundle: Path) -> None:
    """The digest of itself: a number turned into another one leaves JSON that is whole and means something else."""
    path = bundle / "manifest.json"
    good = path.read_text()
    for old, new in (
        ('"max_num_seqs": 32', '"max_num_seqs": 33'),
        ('"weights": "bf16"', '"weights": "int8"'),
        ("{\n", "{\n\n"),
        ("\n", "\r\n"),
        ('"name"', '"name" '),
    ):
        assert old in good
        path.write_bytes(good.replace(old, new, 1).encode())
        refused(bundle, "manifest.json", "manifest_sha256")


def test_a_folder_may_be_a_link_and_a_folder_inside_may_not(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(bundle)
    open_bundle(tmp_path / "current")
    (bundle / "graph").rename(tmp_path / "graph")
    (bundle / "graph").symlink_to(tmp_path / "graph")
    refused(bundle, "graph/draft.onnx", "symbolic link")


def test_strange_things_in_a_file_s_place_are_refused(bundle: Path) -> None:
    path = bundle / "tokenizer.json"
    path.unlink()
    path.mkdir()
    refused(bundle, "tokenizer.json is no plain file")
    path.rmdir()
    os.mkfifo(path)
    refused(bundle, "tokenizer.json is no plain file")
    path.unlink()
    path.symlink_to(path)
    refused(bundle, "tokenizer.json", "symbolic link")


@pytest.mark.parametrize(
    ("name", "noticed"), [("graph/target.onnx.data", {"full"}), ("engines/cpu/target.onnx.data", {"full", "engines"})]
)
def test_hashing_can_be_left_out_and_sizes_cannot(bundle: Path, name: str, noticed: set[str]) -> None:
    path = bundle / name
    content = path.read_bytes()
    for check in DigestCheck:
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        if str(check) in noticed:
            with pytest.raises(BundleError, match=f"{name} has SHA-256"):
                open_bundle(bundle, check)
        else:
            open_bundle(bundle, check)
        path.write_bytes(content[:-1])
        with pytest.raises(BundleError, match=rf"{name} has \d+ bytes"):
            open_bundle(bundle, check)


def test_manifests_that_cannot_be_followed(bundle: Path) -> None:
    manifest = bundle / "manifest.json"
    good = manifest.read_text()
    for text, words in (
        ("", ("manifest.json",)),
        ("{}", ("manifest.json",)),
        ("[1]", ("manifest.json",)),
        ("[" * 100_000, ("manifest.json",)),
        (good.replace('"schema_version": 2', '"schema_version": 3'), ("schema version 3", "upgrade")),
        (good.replace('"schema_version": 2', '"schema_version": 1'), ("schema version 1", "build")),
        (good.replace('"schema_version": 2', '"schema_version": "2"'), ("schema version 2", "build")),
        (good.replace('"source_sha256"', '"source_md5"'), ("roles.draft.source_md5",)),
    ):
        assert text != good
        manifest.write_text(text)
        refused(bundle, *words)
    manifest.unlink()
    refused(bundle, "no manifest.json")
    refused(bundle / "nowhere", "is missing")


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/hostname", "a/../../outside.txt", "./tokenizer.json", "a\0b"])
def test_a_path_that_leaves_the_bundle_is_refused(bundle: Path, name: str) -> None:
    (bundle.parent / "outside.txt").write_text("x")
    entry = {"size_bytes": 1, "sha256": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}
    edit_manifest(bundle, lambda manifest: manifest["files"].update({name: entry}))
    refused(bundle, "outside the bundle")


def test_an_engine_whose_file_nobody_guards_is_refused(bundle: Path) -> None:
    (bundle / "mine.onnx").write_text("x")
    edit_manifest(bundle, lambda manifest: manifest["roles"]["target"]["engines"]["cpu"].update(path="mine.onnx"))
    refused(bundle, "mine.onnx is not among the files")


def test_a_role_or_engine_that_is_not_there_is_named(bundle: Path) -> None:
    opened = open_bundle(bundle)
    with pytest.raises(BundleError, match="one for tensorrt"):
        opened.engine("target", "tensorrt")
    edit_manifest(bundle, lambda manifest: manifest["roles"].pop("draft"))
    assert not open_bundle(bundle).has_draft
    with pytest.raises(BundleError, match="a draft"):
        open_bundle(bundle).role("draft")


def test_draft_and_target_share_the_cache_memory(bundle: Path) -> None:
    from paceline.runtime.request import DraftMethod

    pages = {}
    for method in (DraftMethod.NONE, DraftMethod.DRAFT):
        with open_runtime(bundle, Settings(kv_cache_bytes=1 << 20, drafting=method)).runtime as runtime:
            pages[method] = runtime.loop.pool.num_pages
    sizes = [open_bundle(bundle).role(role).facts.page_bytes for role in ("target", "draft")]
    assert pages[DraftMethod.NONE] == (1 << 20) // sizes[0]
    assert pages[DraftMethod.DRAFT] == (1 << 20) // sum(sizes)
