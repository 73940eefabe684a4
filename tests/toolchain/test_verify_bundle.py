"""`paceline verify` names every file that is not as it was built, all at once, with and without a signature."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from manifest_edits import edit_manifest
from signing_keys import write_key_pair

from paceline.runtime.bundle import read_manifest
from paceline.runtime.errors import BundleError
from paceline.toolchain.sign import KeyTrust, sign_bundle
from paceline.toolchain.verify_bundle import SignatureState, verify_bundle


def named(folder: Path) -> dict[str, str]:
    return {one.name: one.found for one in verify_bundle(folder).problems}


def test_a_whole_bundle(tiny_whole: Path) -> None:
    found = verify_bundle(tiny_whole)
    assert found.is_good
    assert (found.num_files, found.signature) == (len(read_manifest(tiny_whole).files), SignatureState.UNSIGNED)


def turn_a_bit(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def link(path: Path) -> None:
    elsewhere = path.parent.parent / f"elsewhere-{path.name}"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


@pytest.mark.parametrize("damage", [turn_a_bit, cut, Path.unlink, link])
def test_every_single_file_is_named_alone(tiny_whole: Path, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """Nothing else is named with it, except where the link leads into the bundle."""
    for name in [*read_manifest(tiny_whole).files, "manifest.json"]:
        folder = Path(shutil.copytree(tiny_whole, tmp_path / "bundle"))
        damage(folder / name)
        found = verify_bundle(folder)
        assert not found.is_good
        assert [one.name for one in found.problems if "elsewhere" not in one.name] == [name]
        shutil.rmtree(folder)


def test_several_at_once(tiny_copy: Path) -> None:
    turn_a_bit(tiny_copy / "tokenizer.json")
    (tiny_copy / "graph/draft.onnx").rename(tiny_copy / "graph/draft2.onnx")
    (tiny_copy / "chat_template.jinja").unlink()
    (tiny_copy / "graph/notes.txt").write_text("x")
    (tiny_copy / "engines/link").symlink_to("/etc/hostname")
    found = named(tiny_copy)
    assert found["chat_template.jinja"] == "is missing"
    assert found["graph/draft.onnx"] == "is missing: graph/draft2.onnx has its content"
    assert found["graph/notes.txt"] == found["engines/link"] == "is not part of the bundle"
    assert "SHA-256" in found["tokenizer.json"]
    assert len(found) == 5


def test_with_a_key(tiny_copy: Path, tmp_path: Path) -> None:
    private, public = write_key_pair(tmp_path, "key")
    assert verify_bundle(tiny_copy, KeyTrust(public)).signature is SignatureState.BAD
    sign_bundle(tiny_copy, private)
    assert verify_bundle(tiny_copy).signature is SignatureState.NOT_CHECKED
    found = verify_bundle(tiny_copy, KeyTrust(public))
    assert (found.signature, found.is_good) == (SignatureState.GOOD, True)
    edit_manifest(tiny_copy, lambda manifest: manifest["recipe"]["runtime"].update(max_num_seqs=1))
    assert verify_bundle(tiny_copy).is_good
    found = verify_bundle(tiny_copy, KeyTrust(public))
    assert (found.signature, found.reason) == (SignatureState.BAD, "manifest.json not as signed")


def test_a_damaged_manifest_of_a_signed_bundle_hides_no_other_damage(tiny_copy: Path, tmp_path: Path) -> None:
    private, _ = write_key_pair(tmp_path, "key")
    sign_bundle(tiny_copy, private)
    cut(tiny_copy / "manifest.json")
    turn_a_bit(tiny_copy / "tokenizer.json")
    assert set(named(tiny_copy)) == {"manifest.json", "tokenizer.json"}


def test_what_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is missing"):
        verify_bundle(tmp_path / "nowhere")
    assert set(named(tmp_path)) == {"manifest.json"}
