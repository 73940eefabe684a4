"""Whether a bundle would run on this machine: the checks of opening it, all of them, without opening it.

A folder flows in; checks flow out. Opening stops at the first that fails; here the others are asked too, as far as they
still make sense: of a manifest that cannot be read there is nothing more to say.
"""

from pathlib import Path

from ..plugins.errors import PacelineError
from ..runtime.bundle import open_bundle, read_manifest
from ..runtime.machine import Machine, examine_machine
from ..runtime.manifest import SCHEMA_VERSION, Manifest
from ..runtime.opening import KIND, Settings, plan_opening
from ..runtime.preflight import Check, preflight

__all__ = ["examine_bundle"]


def examine_bundle(folder: Path, settings: Settings = Settings(), machine: Machine | None = None) -> tuple[Check, ...]:  # noqa: B008 (frozen)
    """All checks of opening the bundle in `folder` with `settings` on `machine`, by default this one."""
    try:
        manifest = read_manifest(folder)
    except PacelineError as error:
        return (_failed("manifest", error),)
    known = Check("manifest", True, f"schema version {manifest.schema_version}", f"version {SCHEMA_VERSION}", "")
    return (known, _files(folder, manifest), *_opening(manifest, settings, machine or examine_machine()))


def _files(folder: Path, manifest: Manifest) -> Check:
    try:
        open_bundle(folder)
    except PacelineError as error:
        return _failed("files", error)
    return Check("files", True, f"{len(manifest.files)} as they were built", "sizes and digests of the manifest", "")


def _opening(manifest: Manifest, settings: Settings, machine: Machine) -> tuple[Check, ...]:
    try:
        opening = plan_opening(manifest, settings)
    except PacelineError as error:
        return (_failed("settings", error),)
    return preflight(manifest, opening.roles, KIND, machine, opening.memory(manifest))


def _failed(what: str, error: PacelineError) -> Check:
    return Check(what, False, error.found, error.needed, error.do)
