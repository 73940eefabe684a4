"""What this machine has of all that an engine may need: versions, instruction sets, free memory.

Nothing flows in but the machine; a `Machine` flows out, which preflight compares with a manifest. Facts and comparison
are apart so that every comparison is tested without the machine that it is about.
"""

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

__all__ = ["Machine", "available_bytes", "examine_machine"]

ROOT = Path("/")
ONNXRUNTIMES = ("onnxruntime", "onnxruntime-gpu")  # either brings the module
UNLIMITED_BYTES = 1 << 60  # cgroup v1 writes a number near 2^63 for "no limit"


@dataclass(frozen=True)
class Machine:
    """`available_bytes` is None where the system does not say; `sm` is None where no GPU is used."""

    versions: Mapping[str, str] = field(default_factory=dict)
    architecture: str = ""
    instruction_sets: frozenset[str] = frozenset()
    sm: str | None = None
    available_bytes: int | None = None


def examine_machine(root: Path = ROOT) -> Machine:
    """This machine, as the kernel under `root` and the installed packages describe it."""
    return Machine(
        versions=dict(_versions()),
        architecture=platform.machine(),
        instruction_sets=_instruction_sets(root),
        available_bytes=available_bytes(root),
    )


def available_bytes(root: Path = ROOT) -> int | None:
    """Memory that can still be taken: the least of what the system and each control group above this process leave."""
    rooms = [room for room in (_system_bytes(root), *_group_rooms(root)) if room is not None]
    return max(0, min(rooms)) if rooms else None


def _versions() -> Iterator[tuple[str, str]]:
    for name in ONNXRUNTIMES:
        try:
            yield "onnxruntime", metadata.version(name)
            return
        except metadata.PackageNotFoundError:
            continue


def _instruction_sets(root: Path) -> frozenset[str]:
    """The kernel's names for them ("avx2"); x86 says flags, Arm says Features."""
    for line in _lines(root / "proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def _system_bytes(root: Path) -> int | None:
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def _group_rooms(root: Path) -> Iterator[int | None]:
    """What is left in each control group, from this process's own up to the root; version 2 and version 1."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, name = line.split(":", 2)
        if controllers == "":
            yield from _rooms_up(root / "sys/fs/cgroup", name, ("memory.max", "memory.current"))
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            yield from _rooms_up(root / "sys/fs/cgroup/memory", name, names)


def _rooms_up(mount: Path, name: str, files: tuple[str, str]) -> Iterator[int | None]:
    """Inside a container the mount is the group's own folder, and `name` leads nowhere: then only the mount counts."""
    group = mount / name.strip("/")
    while group.is_relative_to(mount):
        yield _room(group, *files)
        group = group.parent


def _room(group: Path, limit_file: str, usage_file: str) -> int | None:
    """Limit less usage; file pages are not counted as used, since the kernel takes them back when asked."""
    limit, usage = _number(group / limit_file), _number(group / usage_file)
    if limit is None or usage is None or limit >= UNLIMITED_BYTES:
        return None
    counters = dict(line.split(" ", 1) for line in _lines(group / "memory.stat"))
    pages = (int(counters.get(f"total_{name}", counters.get(name, 0))) for name in ("active_file", "inactive_file"))
    return limit - max(0, usage - sum(pages))


def _number(path: Path) -> int | None:
    text = "".join(_lines(path))
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
