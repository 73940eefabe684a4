"""SHA-256 of files, streamed."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["digest_of_files"]

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
