"""SHA-256 of several files as one digest: of those on disk streamed, of those in memory as they are."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["digest_of_contents", "digest_of_files"]

CHUNK_BYTES = 1 << 20


def digest_of_files(paths: Iterable[Path]) -> str:
    """One digest over names and contents of `paths`, in the order given."""
    total = hashlib.sha256()
    for path in paths:
        total.update(path.name.encode())
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                total.update(chunk)
    return total.hexdigest()


def digest_of_contents(contents: Mapping[str, bytes]) -> str:
    """One digest over names and contents, in order of the names."""
    total = hashlib.sha256()
    for name in sorted(contents):
        total.update(name.encode())
        total.update(contents[name])
    return total.hexdigest()
