"""Whole or not at all: a folder beside the goal that takes its place at the end, and vanishes when the build does.

The goal flows in; a folder to build in flows out, and after the block the goal is the new bundle or as it was before. A
build that is killed cannot tidy up, so the next one beside it does: it removes what carries our mark and whose lock
nobody holds. Looking whether a process id is alive lost: ids are used again, and mean nothing in another container.

    <parent>/.paceline-build-XXXX/owner     says whose it is; locked as long as its build lives
                                  bundle/   the new bundle
                                  old/      the bundle that is being replaced, for a moment
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

from ..runtime.manifest import MANIFEST
from .errors import RecipeError

__all__ = ["clean_stale", "staging_folder"]

PREFIX = ".paceline-build-"
OWNER = "owner"
NEW, OLD = "bundle", "old"


@contextmanager
def staging_folder(output: Path) -> Iterator[Path]:
    """A folder that becomes `output` when the block ends well. Raises: RecipeError when `output` is no bundle."""
    if output.exists() and not (output / MANIFEST).is_file():
        raise RecipeError(
            f"{output} exists and is no bundle", needed="a new folder, or a bundle to replace", do="choose another -o"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    clean_stale(output.parent)
    room = Path(mkdtemp(prefix=PREFIX, dir=output.parent))
    lock = _mark(room, output.name)
    try:
        (room / NEW).mkdir(mode=0o755)
        yield room / NEW
        _replace(output, room)
    finally:
        _put_back(room, output)
        shutil.rmtree(room, ignore_errors=True)
        os.close(lock)


def clean_stale(parent: Path) -> list[Path]:
    """Remove what killed builds left in `parent`, and put back a bundle that one of them had in hand; returns what."""
    removed = []
    for room in sorted(parent.glob(f"{PREFIX}*")):
        name = _owner(room)
        lock = None if name is None else _lock(room / OWNER)
        if name is None or lock is None:
            continue  # not ours, not yet ours, or somebody is at work
        try:
            _put_back(room, parent / name)
            shutil.rmtree(room, ignore_errors=True)
            removed.append(room)
        finally:
            os.close(lock)
    return removed


def _replace(output: Path, room: Path) -> None:
    """Two renames: whoever is killed between them leaves the old bundle where `_put_back` finds it."""
    if os.path.lexists(output):
        output.rename(room / OLD)
    (room / NEW).rename(output)


def _put_back(room: Path, output: Path) -> None:
    if os.path.lexists(room / OLD) and not os.path.lexists(output):  # the goal may be a link to a bundle
        (room / OLD).rename(output)


def _mark(room: Path, name: str) -> int:
    """Say whose `room` is; the lock is taken before the mark can be seen. Returns the lock."""
    draft = room / f"{OWNER}.new"
    draft.write_text(json.dumps({"paceline_build": name, "pid": os.getpid()}) + "\n")
    lock = os.open(draft, os.O_RDWR)
    with suppress(OSError):  # a file system without locks: then nobody else gets one either, and all is left alone
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    draft.rename(room / OWNER)
    return lock


def _owner(room: Path) -> str | None:
    """The name of the bundle that was built in `room`, None when it does not carry our mark."""
    if room.is_symlink() or (room / OWNER).is_symlink():
        return None
    try:
        name = json.loads((room / OWNER).read_text(encoding="utf-8"))["paceline_build"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) and name and Path(name).name == name else None


def _lock(path: Path) -> int | None:
    """An open descriptor with the lock of `path`, None while another process has it."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
