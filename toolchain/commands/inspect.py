"""`paceline inspect`: what a bundle holds, where it came from and what was done to it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ...runtime.bundle import Bundle, open_bundle
from ...runtime.bundle_files import extra_files, file_entry
from ...runtime.manifest import MANIFEST
from ...runtime.opening import Settings, plan_opening
from ...runtime.request import DraftMethod
from ..verify_bundle import signature_state
from .console import print_json, print_line, print_table

__all__ = ["inspect"]

ACCURACY = "reports/accuracy.json"
MIB = 1 << 20


def inspect(
    bundle: Annotated[Path, typer.Argument(help="Bundle folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")] = False,
) -> None:
    """Check BUNDLE file by file and print what it is: models, memory, passes, files, signature."""
    opened = open_bundle(bundle)
    if as_json:
        print_json(asdict(opened.manifest) | _beyond_manifest(opened))
        return
    manifest = opened.manifest
    size_bytes = sum(file.size_bytes for file in manifest.files.values())
    print_line(f"{manifest.name}: all {len(manifest.files)} files are as they were built, {size_bytes / MIB:,.1f} MiB")
    print_line(f"{signature_state(bundle)}; manifest {file_entry(bundle / MANIFEST).sha256}")
    for table in (_roles(opened), _memory(opened), _passes(opened), _files(opened)):
        print_table(table)


def _beyond_manifest(bundle: Bundle) -> dict[str, object]:
    """What --json says on top of the manifest."""
    return {
        "digest": file_entry(bundle.folder / MANIFEST).sha256,
        "signature": str(signature_state(bundle.folder)),
        "extra_files": extra_files(bundle.folder, bundle.manifest.files),
        "memory": asdict(plan_opening(bundle.manifest, Settings()).memory(bundle.manifest)),
    }


def _roles(bundle: Bundle) -> Table:
    table = Table("role", "from", "layers", "vocabulary", "positions", "cache", "KiB/page", "engines", title="models")
    formats = _formats(bundle)
    for role, entry in bundle.manifest.roles.items():
        facts = entry.facts
        engines = "\n".join(f"{kind}: {formats.get(role, engine.weights)}" for kind, engine in entry.engines.items())
        table.add_row(
            role,
            entry.source,
            str(len(facts.layers)),
            str(facts.vocab_size),
            str(facts.max_positions),
            facts.cache_dtype,
            f"{facts.page_bytes / 1024:.0f}",
            engines,
        )
    return table


def _formats(bundle: Bundle) -> dict[str, str]:
    """The number formats that really stand in each role's layers, where the build has written them down."""
    try:
        roles = json.loads(bundle.read_text(ACCURACY) or "{}").items()
        return {role: ", ".join(f"{count} {name}" for name, count in one["formats"].items()) for role, one in roles}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _memory(bundle: Bundle) -> Table:
    """What it takes to run with the settings that it was built with; where there is a draft, also with it."""
    table = Table("opened", "weights", "cache", "activations", "all", title="memory to run it, MiB")
    methods = (None, DraftMethod.AUTO) if bundle.has_draft else (None,)
    openings = [plan_opening(bundle.manifest, Settings(drafting=method)) for method in methods]
    needs = {" + ".join(opening.roles): opening.memory(bundle.manifest) for opening in openings}
    for roles, need in needs.items():
        parts = (need.weights_bytes, need.cache_bytes, need.activation_bytes, need.total_bytes)
        table.add_row(roles, *(f"{part / MIB:,.1f}" for part in parts))
    return table


def _passes(bundle: Bundle) -> Table:
    table = Table("role", "pass", "rewrites", title="passes, in order")
    for role, entry in bundle.manifest.roles.items():
        for one in entry.passes:
            table.add_row(role, one.name, str(one.count))
    return table


def _files(bundle: Bundle) -> Table:
    table = Table("file", "bytes", "SHA-256", title="files")
    for name, file in bundle.manifest.files.items():
        table.add_row(name, f"{file.size_bytes:,}", file.sha256[:16] + "…")
    return table
