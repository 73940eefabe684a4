"""The files of a bundle against its manifest: whole or not, and which are there that should not be.

A folder and the manifest's table of files flow in; problems flow out one by one, so that opening stops at the first and
`paceline verify` names them all. Files are streamed: a bundle is larger than the memory it runs in.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath

from .manifest import MANIFEST, SIGNATURE, FileEntry

__all__ = ["DigestCheck", "FileProblem", "extra_files", "file_entry", "file_problems", "is_plain_name"]

CHUNK_BYTES = 1 << 20
GRAPHS = "graph/"
AS_BUILT = "the file as it was built"


class DigestCheck(StrEnum):
    """How closely files are looked at: `FULL` hashes all, `SIZES` none and only asks for their sizes.

    `ENGINES` hashes all but the portable graphs: serving does not read them, and they are more than half of a bundle.
    """

    FULL = "full"
    ENGINES = "engines"
    SIZES = "sizes"


@dataclass(frozen=True)
class FileProblem:
    """One file that is not as the manifest says."""

    name: str
    found: str
    needed: str = AS_BUILT


def file_problems(folder: Path, files: Mapping[str, FileEntry], check: DigestCheck) -> Iterator[FileProblem]:
    """What is wrong with the files that the manifest names, in order of their names."""
    root = folder.resolve()
    for name, expected in sorted(files.items()):
        try:
            problem = _problem_of(root, name, expected, check)
        except OSError as error:
            problem = FileProblem(name, f"cannot be read ({error.strerror})")
        if problem is not None:
            yield problem


def extra_files(folder: Path, files: Mapping[str, FileEntry]) -> list[str]:
    """Names of what lies in `folder` and is neither in `files` nor the manifest or its signature; links included."""
    known = {*files, MANIFEST, SIGNATURE}
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(name for path in found if (name := path.relative_to(folder).as_posix()) not in known)


def file_entry(path: Path) -> FileEntry:
    """Size and digest of a file, streamed."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return FileEntry(path.stat().st_size, digest.hexdigest())


def is_plain_name(name: str) -> bool:
    """Whether `name` is a relative path that stays inside, in its only spelling."""
    path = PurePosixPath(name)
    is_inside = not path.is_absolute() and ".." not in path.parts and path.parts != ()
    return is_inside and path.as_posix() == name and "\0" not in name


def _problem_of(root: Path, name: str, expected: FileEntry, check: DigestCheck) -> FileProblem | None:
    path = root / name
    if path.is_symlink() or os.path.realpath(path) != str(path):  # Path.resolve raises on a loop of links
        return FileProblem(name, "is a symbolic link, or lies behind one", "a file of the bundle's own")
    if not path.is_file():
        return FileProblem(name, "is no plain file" if path.exists() else "is missing")
    size = path.stat().st_size
    if size != expected.size_bytes:
        return FileProblem(name, f"has {size} bytes", f"{expected.size_bytes} bytes as the manifest says")
    if check is DigestCheck.SIZES or (check is DigestCheck.ENGINES and name.startswith(GRAPHS)):
        return None
    sha256 = file_entry(path).sha256
    if sha256 != expected.sha256:
        return FileProblem(name, f"has SHA-256 {sha256}", f"{expected.sha256} as the manifest says")
    return None
