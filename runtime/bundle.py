"""Opening a bundle: every question that can be asked before anything is loaded is asked here.

A folder flows in; a `Bundle` flows out whose files are known to be whole, or an error that says found / needed / do.
Checking digests lazily, file by file, lost: an engine that fails after a minute of loading is found out too late.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..plugins.contract import DTYPE_BYTES, GraphFacts
from .bundle_files import DigestCheck, file_problems, is_plain_name
from .errors import BundleError
from .manifest import MANIFEST, SCHEMA_VERSION, EngineEntry, Manifest, RoleEntry

__all__ = ["Bundle", "open_bundle", "read_manifest"]

AS_BUILT = "the file as it was built"
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
        """A text file of the bundle, None where it has none of that name. Raises: BundleError when it is no text."""
        if name not in self.manifest.files:
            return None
        try:
            return (self.folder / name).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise _damaged(name, f"cannot be read ({error})") from None

    def generation_config(self) -> Mapping[str, object]:
        """Special ids of the model: bos_token_id, eos_token_id (a list), pad_token_id, where known."""
        text = self.read_text("generation_config.json")
        content: object = json.loads(text) if text else {}
        return content if isinstance(content, dict) else {}


def open_bundle(folder: Path, digests: DigestCheck = DigestCheck.FULL) -> Bundle:
    """The bundle in `folder`, with every file that its manifest names compared. Raises: BundleError."""
    manifest = read_manifest(folder)
    for problem in file_problems(folder, manifest.files, digests):
        raise _damaged(problem.name, problem.found, problem.needed)
    return Bundle(folder, manifest)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the bundle in `folder`; none of the files that it names are looked at. Raises: BundleError."""
    text = _manifest_text(folder)
    try:
        raw = json.loads(text)
        version = raw["schema_version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(MANIFEST, f"cannot be read ({type(error).__name__}: {error})") from None
    if type(version) is not int or version != SCHEMA_VERSION:
        raise BundleError(
            f"{folder.name} has schema version {version}",
            needed=f"version {SCHEMA_VERSION}, which this paceline reads",
            do="upgrade paceline" if type(version) is int and version > SCHEMA_VERSION else "build the bundle again",
        )
    try:
        manifest = Manifest.from_json(text)
        _check_content(manifest)
    except (ValueError, RecursionError) as error:
        raise _damaged(MANIFEST, f"does not hold ({error})") from None
    return manifest


def _manifest_text(folder: Path) -> str:
    path = folder / MANIFEST
    if not path.is_file():
        raise BundleError(
            f"{folder} {'has no ' + MANIFEST if folder.is_dir() else 'is missing'}",
            needed="a bundle folder",
            do="give the folder that 'paceline build' printed",
        )
    if path.is_symlink():
        raise _damaged(MANIFEST, "is a symbolic link")
    try:
        return path.read_bytes().decode()  # bytes: reading as text would forgive other line ends
    except (OSError, ValueError) as error:
        raise _damaged(MANIFEST, f"cannot be read ({error})") from None


def _check_content(manifest: Manifest) -> None:
    """Raise ValueError for what is well-formed and cannot be: a sealed manifest that no build would write."""
    for name in manifest.files:
        if not is_plain_name(name):
            raise ValueError(f"files: {name!r} points outside the bundle")
    if "target" not in manifest.roles:
        raise ValueError("roles: no target")
    for role, entry in manifest.roles.items():
        _check_facts(f"roles.{role}.facts", entry.facts)
        for kind, engine in entry.engines.items():
            if engine.path not in manifest.files:
                raise ValueError(f"roles.{role}.engines.{kind}: {engine.path} is not among the files")


def _check_facts(where: str, facts: GraphFacts) -> None:
    numbers = [facts.vocab_size, facts.hidden_size, facts.max_positions, facts.page_size, len(facts.layers)]
    numbers += [number for layer in facts.layers for number in (layer.kv_heads, layer.head_dim)]
    if not all(0 < number < 1 << 31 for number in numbers):
        raise ValueError(f"{where}: sizes from 1 to 2^31 are needed")
    if facts.cache_dtype not in DTYPE_BYTES:
        raise ValueError(f"{where}.cache_dtype: {facts.cache_dtype}, needed one of {', '.join(DTYPE_BYTES)}")


def _damaged(name: str, what: str, needed: str = AS_BUILT) -> BundleError:
    return BundleError(f"{name} {what}", needed=needed, do=REBUILD)
