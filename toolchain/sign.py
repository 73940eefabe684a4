"""Signatures of bundles: made with a key, checked with a key or with an identity, in the format of `model-signing`.

A bundle folder and a key flow in; the file `signature` inside the folder flows out, or a yes. The signature covers
every other file, the manifest included, so that nobody can exchange a file and its digest together. A format of our own
was the alternative and lost: `model_signing verify` checks these on machines that have never heard of Paceline.
"""

import base64
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..runtime.bundle import open_bundle
from ..runtime.bundle_files import FileProblem, extra_files, file_entry
from ..runtime.manifest import SIGNATURE
from .errors import SignatureError
from .extras import require_extra

__all__ = ["IdentityTrust", "KeyTrust", "Trust", "changed_since_signing", "check_signature", "sign_bundle"]

NEW_KEY = "make one with 'openssl ecparam -name prime256v1 -genkey -noout -out key.pem'"
NOT_SIGNED = "is not as it was signed"


@dataclass(frozen=True)
class KeyTrust:
    """Whoever holds the private half of this key is believed."""

    public_key: Path


@dataclass(frozen=True)
class IdentityTrust:
    """Who proved this identity to this provider, as sigstore's logs have it, is believed.

    `trust_config` is a file with the roots to believe in; without it the package asks sigstore's servers for them.
    """

    identity: str
    provider: str
    trust_config: Path | None = None


Trust = KeyTrust | IdentityTrust


def sign_bundle(folder: Path, private_key: Path, password: str | None = None) -> Path:
    """Write the signature of the bundle in `folder`, over an older one; returns its path.

    Raises: BundleError when the bundle is not whole, SignatureError for a key that cannot sign.
    """
    require_extra("sign", "signing bundles")
    from model_signing import hashing, signing

    _check_whole(folder)
    config = signing.Config().set_hashing_config(
        hashing.Config().set_ignored_paths(paths=[SIGNATURE], ignore_git_paths=False)
    )
    secret = None if password is None else password.encode()  # the package hands it on to one that takes bytes
    _with_key(
        private_key, "a private", lambda: config.use_elliptic_key_signer(private_key=private_key, password=secret)
    )
    with TemporaryDirectory() as room:
        config.sign(folder, Path(room) / SIGNATURE)
        _put(folder, (Path(room) / SIGNATURE).read_bytes())
    return folder / SIGNATURE


def check_signature(folder: Path, trust: Trust) -> None:
    """Whether the bundle in `folder` is what somebody in whom `trust` believes has signed. Raises: SignatureError."""
    require_extra("sign", "checking signatures")
    path = folder / SIGNATURE
    if not path.is_file():
        raise SignatureError(f"{folder.name} is not signed", needed="a signature", do="sign it: paceline sign BUNDLE")
    config = _verifier(trust)
    try:
        config.verify(folder, path)
    except Exception as error:  # cryptography, sigstore and the package itself raise each their own
        raise SignatureError(
            f"the signature does not hold: {_why(error, folder)}",
            needed=f"a signature of this content, by {_whom(trust)}",
            do="do not use this bundle; fetch it again, or check that this is the right key or identity",
        ) from error
    left_out = sorted(_names_in(folder) - _signed(folder).keys())  # the package passes over what a signer left out
    if left_out:
        raise SignatureError(
            f"the signature does not hold: {', '.join(left_out)} not as signed",
            needed="a signature over all files of the bundle",
            do="take away what is not part of the bundle, or sign it: paceline sign BUNDLE",
        )


def changed_since_signing(folder: Path) -> tuple[FileProblem, ...]:
    """Files that are not as the signature says, whoever made it; empty where that cannot be read from it."""
    try:
        signed = _signed(folder)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ()
    now = _names_in(folder)
    new = sorted(now - signed.keys())
    changed = [name for name in signed.keys() & now if file_entry(folder / name).sha256 != signed[name]]
    return (
        *(FileProblem(name, NOT_SIGNED) for name in sorted(changed)),
        *(FileProblem(name, "was signed and is missing") for name in sorted(signed.keys() - now)),
        *(FileProblem(name, "was not there when it was signed", "nothing else") for name in new),
    )


def _names_in(folder: Path) -> set[str]:
    """Every file in `folder` but the signature."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {SIGNATURE}


def _signed(folder: Path) -> Mapping[str, str]:
    """Digests by file name, as the signature's payload lists them. Raises: whatever a strange file makes it."""
    signature = json.loads((folder / SIGNATURE).read_text(encoding="utf-8"))
    statement = json.loads(base64.b64decode(signature["dsseEnvelope"]["payload"]))
    return {one["name"]: one["digest"] for one in statement["predicate"]["resources"]}


def _check_whole(folder: Path) -> None:
    """A signature blesses all that lies in the folder: so nothing else may lie there."""
    extra = extra_files(folder, open_bundle(folder).manifest.files)
    if extra:
        raise SignatureError(
            f"{', '.join(extra)} in {folder.name}, of which its manifest knows nothing",
            needed="the files of the bundle and no others",
            do="move them elsewhere, then sign",
        )


def _put(folder: Path, signature: bytes) -> None:
    """Beside its place first: whoever reads meanwhile finds the old one or the new one, whole."""
    new = folder / f".{SIGNATURE}.new"
    try:
        new.write_bytes(signature)
        os.replace(new, folder / SIGNATURE)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise SignatureError(
            f"{folder} cannot be written ({error.strerror})", needed="a place for the signature", do="sign a copy of it"
        ) from None


def _verifier(trust: Trust) -> Any:
    from model_signing import verifying

    config = verifying.Config()
    if isinstance(trust, KeyTrust):
        key = trust.public_key
        return _with_key(key, "a public", lambda: config.use_elliptic_key_verifier(public_key=key))
    try:
        return config.use_sigstore_verifier(
            identity=trust.identity, oidc_issuer=trust.provider, trust_config=trust.trust_config
        )
    except Exception as error:  # a file of the wrong form, or no network
        raise SignatureError(
            f"sigstore's roots of trust cannot be had ({_first_line(error)})",
            needed="a trust configuration (JSON), or a network to sigstore's servers",
            do="fetch one where there is a network, and give it with --trust-config FILE",
        ) from error


def _with_key(path: Path, half: str, use: Callable[[], Any]) -> Any:
    try:
        return use()
    except Exception as error:  # cryptography has a dozen reasons, of unrelated types
        raise SignatureError(
            f"{path} cannot be used ({_first_line(error)})",
            needed=f"{half} elliptic curve key (P-256, P-384 or P-521) in PEM",
            do=NEW_KEY if half == "a private" else "write it with 'openssl ec -in key.pem -pubout -out key.pub'",
        ) from error


def _why(error: Exception, folder: Path) -> str:
    """The names of what changed; where nothing did it is the key or the identity, and the package says so."""
    changed = [one.name for one in changed_since_signing(folder)]
    if changed:
        return f"{', '.join(changed)} not as signed"
    return _first_line(error)


def _first_line(error: Exception) -> str:
    """Some packages explain themselves over a page."""
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0].removesuffix(": ")


def _whom(trust: Trust) -> str:
    return str(trust.public_key) if isinstance(trust, KeyTrust) else f"{trust.identity} at {trust.provider}"
