"""Every question that can be asked before an engine is opened, and its answer: found, needed, do.

A manifest, what the opening asks for and a `Machine` flow in; checks flow out, in the order in which they are worth
reading. Nothing here touches a device or reads a file, so that each answer is tested without the machine that gives it.
Letting the engine fail was the alternative and lost: it fails after a minute of loading, with a tag number.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from .errors import BundleError
from .machine import Machine
from .manifest import EngineEntry, EngineNeeds, Manifest, RoleEntry
from .memory_need import MemoryNeed

__all__ = ["Check", "preflight", "require"]

MIB = 1 << 20


@dataclass(frozen=True)
class Check:
    """One question: whether `found` is enough for what is `needed`, and what to `do` when it is not."""

    what: str
    ok: bool
    found: str
    needed: str
    do: str

    def as_dict(self) -> dict[str, object]:
        """The same as a JSON object."""
        return asdict(self)


def preflight(
    manifest: Manifest, roles: Sequence[str], kind: str, machine: Machine, memory: MemoryNeed | None
) -> tuple[Check, ...]:
    """All checks of opening `roles` on an engine of `kind`; without `memory` that check is left out."""
    return tuple(_checks(manifest, roles, kind, machine, memory))


def require(checks: Sequence[Check]) -> None:
    """Raise `BundleError` with the first check that fails, and how many others do."""
    failed = [check for check in checks if not check.ok]
    if failed:
        first, others = failed[0], len(failed) - 1
        more = f" (and {others} more: 'paceline doctor BUNDLE' lists them)" if others else ""
        raise BundleError(f"{first.what}: {first.found}", needed=first.needed, do=first.do + more)


def _checks(
    manifest: Manifest, roles: Sequence[str], kind: str, machine: Machine, memory: MemoryNeed | None
) -> Iterator[Check]:
    for name in roles:
        role = manifest.roles.get(name)
        yield _has_role(manifest, name)
        if role is None:
            continue
        yield _has_engine(name, role, kind)
        if kind in role.engines:
            yield from _fits(name, role.engines[kind], machine)
    if memory is not None:
        yield _has_memory(memory, machine)


def _has_role(manifest: Manifest, name: str) -> Check:
    return Check(
        f"{name} in the bundle",
        name in manifest.roles,
        f"{manifest.name} holds {_listed(manifest.roles)}",
        f"a {name}",
        f"add '{name}:' to the recipe and build again",
    )


def _has_engine(name: str, role: RoleEntry, kind: str) -> Check:
    return Check(
        f"{name}: engine",
        kind in role.engines,
        f"engines for {_listed(role.engines)}",
        f"one for {kind}",
        f"add {kind} to build.targets in the recipe and build again",
    )


def _fits(name: str, engine: EngineEntry, machine: Machine) -> Iterator[Check]:
    needs = engine.needs
    if needs.onnxruntime is not None:
        yield _has_onnxruntime(name, needs, machine)
    if needs.instruction_sets:
        yield _has_instructions(name, needs, machine)
    if needs.sm is not None:
        yield _has_sm(name, needs.sm, machine)


def _has_onnxruntime(name: str, needs: EngineNeeds, machine: Machine) -> Check:
    oldest = needs.onnxruntime or "0"
    found = machine.versions.get("onnxruntime")
    return Check(
        f"{name}: onnxruntime",
        found is not None and _numbers(found) >= _numbers(oldest),
        f"onnxruntime {found}" if found else "no onnxruntime",
        f"{oldest} or newer, for opset {needs.opset} and IR version {needs.ir_version}",
        "pip install -U 'paceline[cpu]'",
    )


def _has_instructions(name: str, needs: EngineNeeds, machine: Machine) -> Check:
    missing = sorted(set(needs.instruction_sets) - machine.instruction_sets)
    return Check(
        f"{name}: instruction sets",
        not missing,
        f"this {machine.architecture or 'processor'} lacks {', '.join(missing)}" if missing else "all of them",
        ", ".join(needs.instruction_sets),
        "run it on a processor that has them, or build for this one",
    )


def _has_sm(name: str, sm: str, machine: Machine) -> Check:
    return Check(
        f"{name}: GPU",
        machine.sm == sm,
        f"this GPU is sm_{machine.sm}" if machine.sm else "no GPU",
        f"sm_{sm}, which the engine was built for",
        f"rebuild for sm_{machine.sm}" if machine.sm else f"run it on a GPU with sm_{sm}, or take the cpu engine",
    )


def _has_memory(memory: MemoryNeed, machine: Machine) -> Check:
    room = machine.available_bytes
    rest = memory.total_bytes - memory.cache_bytes
    fits_with = f"lower kv_cache_memory to {(room - rest) // MIB} MiB" if room and room > rest + MIB else ""
    other = "free some memory, or open it all the same with --memory-check off (of 'paceline run')"
    return Check(
        "memory",
        room is None or memory.total_bytes <= room,
        "not known on this system" if room is None else f"{room / MIB:.0f} MiB can still be taken",
        memory.as_text(),
        f"{fits_with}, {other}" if fits_with else other,
    )


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: "1.23.0rc1" is 1, 23, 0."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in release.group().split(".")) if release else ()


def _listed(names: object) -> str:
    return ", ".join(sorted(names)) or "nothing"  # type: ignore[call-overload]
