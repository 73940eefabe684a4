"""Signatures: made, checked, moved with their bundle, and refused for every change of content, key or coverage."""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from manifest_edits import edit_manifest
from signing_keys import write_key_pair
from tiny_sigstore import TinySigstore

from paceline.runtime.bundle import open_bundle
from paceline.runtime.bundle_files import file_entry
from paceline.runtime.errors import BundleError
from paceline.toolchain.errors import SignatureError
from paceline.toolchain.sign import IdentityTrust, KeyTrust, check_signature, sign_bundle

Keys = tuple[Path, Path]
ME, PROVIDER = "me@example.org", "https://id.example.org"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return write_key_pair(tmp_path_factory.mktemp("keys"), "key")


@pytest.fixture(scope="module")
def signed_whole(tiny_whole: Path, keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(tiny_whole, tmp_path_factory.mktemp("signed") / "bundle"))
    sign_bundle(folder, keys[0])
    return folder


@pytest.fixture
def signed(signed_whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(signed_whole, tmp_path / "signed"))


def refused(folder: Path, key: Path, *words: str) -> None:
    with pytest.raises(SignatureError) as caught:
        check_signature(folder, KeyTrust(key))
    for word in words:
        assert word in str(caught.value)


def test_a_signature_holds_wherever_the_bundle_goes(signed: Path, keys: Keys, tmp_path: Path) -> None:
    check_signature(signed, KeyTrust(keys[1]))
    moved = signed.rename(tmp_path / "elsewhere")
    check_signature(moved, KeyTrust(keys[1]))
    open_bundle(moved)
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]


def test_signing_again_replaces_the_signature(signed: Path, keys: Keys, tmp_path: Path) -> None:
    private, public = write_key_pair(tmp_path, "second", ec.SECP384R1())
    sign_bundle(signed, private)
    check_signature(signed, KeyTrust(public))
    refused(signed, keys[1], "does not hold", "fetch it again")


def test_the_tool_of_the_package_believes_it_too(signed: Path, keys: Keys) -> None:
    command = [sys.executable, "-m", "model_signing", "verify", "key", signed, "--signature", signed / "signature"]
    done = subprocess.run([*command, "--public_key", keys[1]], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def turn_a_bit(folder: Path) -> None:
    path = folder / "engines/cpu/target.onnx.data"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def exchange_file_and_digest(folder: Path) -> None:
    """What digests alone cannot see."""
    turn_a_bit(folder)
    entry = vars(file_entry(folder / "engines/cpu/target.onnx.data"))
    edit_manifest(folder, lambda manifest: manifest["files"].update({"engines/cpu/target.onnx.data": entry}))
    open_bundle(folder)


@pytest.mark.parametrize(
    ("damage", "names"),
    [
        (turn_a_bit, ("engines/cpu/target.onnx.data",)),
        (exchange_file_and_digest, ("engines/cpu/target.onnx.data", "manifest.json")),
        (lambda folder: (folder / "tokenizer.json").unlink(), ("tokenizer.json",)),
        (lambda folder: (folder / "more.txt").write_text("x"), ("more.txt",)),
        (lambda folder: (folder / ".gitignore").write_text("x"), (".gitignore",)),
        (lambda folder: (folder / "tokenizer.json").rename(folder / "t"), ("tokenizer.json", "t")),
    ],
)
def test_every_change_is_noticed_and_named(
    signed: Path, keys: Keys, damage: Callable[[Path], object], names: tuple[str, ...]
) -> None:
    damage(signed)
    refused(signed, keys[1], "not as signed", *names)


def test_another_key_is_refused(signed: Path, tmp_path: Path) -> None:
    refused(signed, write_key_pair(tmp_path, "other")[1], "does not hold")


def test_a_signature_that_was_written_for_another_bundle_is_refused(signed: Path, keys: Keys, tiny_copy: Path) -> None:
    edit_manifest(tiny_copy, lambda manifest: manifest.update(name="other"))
    (tiny_copy / "signature").write_bytes((signed / "signature").read_bytes())
    refused(tiny_copy, keys[1], "manifest.json not as signed")


def test_a_payload_that_was_exchanged_is_refused(signed: Path, keys: Keys) -> None:
    path = signed / "signature"
    content = json.loads(path.read_text())
    payload = content["dsseEnvelope"]["payload"]
    content["dsseEnvelope"]["payload"] = payload[:40] + ("A" if payload[40] != "A" else "B") + payload[41:]
    path.write_text(json.dumps(content))
    refused(signed, keys[1], "does not hold")


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"dsseEnvelope": {}}', "\0"])
def test_rubbish_in_the_signature_s_place_is_refused(signed: Path, keys: Keys, text: str) -> None:
    (signed / "signature").write_text(text)
    refused(signed, keys[1], "does not hold")


def test_a_signature_that_leaves_the_manifest_out_is_refused(tiny_copy: Path, keys: Keys) -> None:
    """The package lets a signer leave files out; then a good signature says nothing of the rest."""
    from model_signing import hashing, signing

    chosen = hashing.Config().set_ignored_paths(paths=["signature", "manifest.json"])
    config = signing.Config().use_elliptic_key_signer(private_key=keys[0]).set_hashing_config(chosen)
    config.sign(tiny_copy, tiny_copy / "signature")
    refused(tiny_copy, keys[1], "manifest.json not as signed")


def test_no_signature_at_all(tiny_copy: Path, keys: Keys) -> None:
    refused(tiny_copy, keys[1], "is not signed")


def test_only_whole_bundles_are_signed(tiny_copy: Path, keys: Keys) -> None:
    (tiny_copy / "key.pem").write_text("a private key that should not travel")
    with pytest.raises(SignatureError, match=r"key\.pem"):
        sign_bundle(tiny_copy, keys[0])
    (tiny_copy / "key.pem").unlink()
    turn_a_bit(tiny_copy)
    with pytest.raises(BundleError, match=r"target\.onnx\.data"):
        sign_bundle(tiny_copy, keys[0])
    assert not (tiny_copy / "signature").exists()


def test_a_key_with_a_password(tiny_copy: Path, tmp_path: Path) -> None:
    private, public = write_key_pair(tmp_path, "locked", password="secret")
    for wrong in (None, "guess"):
        with pytest.raises(SignatureError, match=r"locked\.pem cannot be used"):
            sign_bundle(tiny_copy, private, wrong)
    sign_bundle(tiny_copy, private, "secret")
    check_signature(tiny_copy, KeyTrust(public))


def test_a_folder_that_cannot_be_written(tiny_copy: Path, keys: Keys) -> None:
    (tiny_copy / "signature").mkdir()
    with pytest.raises(SignatureError, match=r"cannot be written.*sign a copy"):
        sign_bundle(tiny_copy, keys[0])
    assert not (tiny_copy / ".signature.new").exists()


def test_keys_that_cannot_be_used(tiny_copy: Path, keys: Keys, tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("x")
    odd, _ = write_key_pair(tmp_path, "odd", ec.SECP256K1())
    for key in (rubbish, odd, keys[1], tmp_path / "nowhere.pem"):
        with pytest.raises(SignatureError, match="openssl ecparam"):
            sign_bundle(tiny_copy, key)


def test_an_identity_needs_roots_of_trust(signed: Path, tmp_path: Path) -> None:
    roots = tmp_path / "trust.json"
    roots.write_text("{}")
    with pytest.raises(SignatureError, match=r"roots of trust cannot be had.*--trust-config"):
        check_signature(signed, IdentityTrust(ME, PROVIDER, roots))


def test_a_signature_of_sigstore_is_checked_without_a_network(
    signed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real verifier with made-up roots: certificate, both logs, identity and content must all be right."""
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("somebody went to the network"))
    sigstore = TinySigstore()
    sigstore.sign_again(signed / "signature", ME, PROVIDER)
    roots = sigstore.write_trust(tmp_path / "trust.json")
    check_signature(signed, IdentityTrust(ME, PROVIDER, roots))
    others = TinySigstore().write_trust(tmp_path / "others.json")
    for trust in (
        IdentityTrust("somebody@example.org", PROVIDER, roots),
        IdentityTrust(ME, "https://elsewhere.example.org", roots),
        IdentityTrust(ME, PROVIDER, others),
    ):
        with pytest.raises(SignatureError, match="does not hold"):
            check_signature(signed, trust)
    turn_a_bit(signed)
    with pytest.raises(SignatureError, match=r"target\.onnx\.data not as signed"):
        check_signature(signed, IdentityTrust(ME, PROVIDER, roots))


def test_a_key_s_signature_is_no_identity_s(signed: Path, keys: Keys, tmp_path: Path) -> None:
    sigstore = TinySigstore()
    roots = sigstore.write_trust(tmp_path / "trust.json")
    with pytest.raises(SignatureError, match="does not hold"):
        check_signature(signed, IdentityTrust(ME, PROVIDER, roots))
    sigstore.sign_again(signed / "signature", ME, PROVIDER)
    refused(signed, keys[1], "does not hold")
