"""Opening a bundle: every question that can be asked before anything is loaded is asked here.

A folder flows in; a `Bundle` flows out whose files are known to be whole, or an error that says found / needed / do.
Checking digests lazily, file by file, lost: an engine that fails after a minute of loading is found out too late.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import BundleError
from .manifest import MANIFEST, SCHEMA_VERSION, EngineEntry, FileEntry, Manifest, RoleEntry

__all__ = ["Bundle", "file_entry", "open_bundle"]

CHUNK_BYTES = 1 << 20
REBUILD = "build or copy the bundle again"


@dataclass(frozen=True)
class Bundle:
    """A bundle that has passed its checks."""

    folder: Path
    manifest: Manifest

    @property
    def has_draft(self) -> bool:
        """Whether a draft engine is in it."""
        return "draft" in self.manifest.roles

    def role(self, name: str) -> RoleEntry:
        """Target or draft. Raises: BundleError."""
        if name not in self.manifest.roles:
            raise BundleError(
                f"{self.folder.name} holds {', '.join(self.manifest.roles)}",
                needed=f"a {name}",
                do=f"add '{name}:' to the recipe and build again",
            )
        return self.manifest.roles[name]

    def engine(self, role: str, kind: str) -> tuple[EngineEntry, Path]:
        """One engine and the file to open. Raises: BundleError naming the kinds that are there."""
        engines = self.role(role).engines
        if kind not in engines:
            raise BundleError(
                f"{self.folder.name} holds {role} engines for {', '.join(engines) or 'nothing'}",
                needed=f"one for {kind}",
                do=f"add {kind} to build.targets in the recipe and build again",
            )
        return engines[kind], self.folder / engines[kind].path

    def read_text(self, name: str) -> str | None:
        """A text file of the bundle, None where it has none of that name."""
        return (self.folder / name).read_text(encoding="utf-8") if name in self.manifest.files else None

    def generation_config(self) -> Mapping[str, object]:
        """Special ids of the model: bos_token_id, eos_token_id (a list), pad_token_id, where known."""
        text = self.read_text("generation_config.json")
        return json.loads(text) if text else {}


def open_bundle(folder: Path) -> Bundle:
    """The bundle in `folder`, with every file's size and digest compared. Raises: BundleError."""
    manifest = _read_manifest(folder)
    for name, expected in sorted(manifest.files.items()):
        _check_file(folder, name, expected)
    return Bundle(folder, manifest)


def file_entry(path: Path) -> FileEntry:
    """Size and digest of a file, streamed."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return FileEntry(path.stat().st_size, digest.hexdigest())


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    if not path.is_file():
        raise BundleError(
            f"{folder} {'has no ' + MANIFEST if folder.is_dir() else 'is missing'}",
            needed="a bundle folder",
            do="give the folder that 'paceline build' printed",
        )
    try:
        text = path.read_text(encoding="utf-8")
        version = json.loads(text)["schema_version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(MANIFEST, f"cannot be read ({error})") from None
    if version != SCHEMA_VERSION:
        raise BundleError(
            f"{folder.name} has schema version {version}",
            needed=f"version {SCHEMA_VERSION}, which this paceline reads",
            do="upgrade paceline"
            if isinstance(version, int) and version > SCHEMA_VERSION
            else "build the bundle again",
        )
    try:
        return Manifest.from_json(text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(MANIFEST, f"lacks or misspells {error}") from None


def _check_file(folder: Path, name: str, expected: FileEntry) -> None:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise _damaged(name, "points outside the bundle")
    if not path.is_file():
        raise _damaged(name, "is missing")
    size = path.stat().st_size
    if size != expected.size_bytes:
        raise _damaged(name, f"has {size} bytes", f"{expected.size_bytes} bytes as the manifest says")
    found = file_entry(path)
    if found.sha256 != expected.sha256:
        raise _damaged(name, f"has SHA-256 {found.sha256}", f"{expected.sha256} as the manifest says")


def _damaged(name: str, what: str, needed: str = "the file as it was built") -> BundleError:
    return BundleError(f"{name} {what}", needed=needed, do=REBUILD)
