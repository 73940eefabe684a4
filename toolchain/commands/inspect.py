"""`paceline inspect`: what a bundle holds, where it came from and what was done to it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ...runtime.bundle import Bundle, open_bundle
from .console import print_json, print_line, print_table

__all__ = ["inspect"]


def inspect(
    bundle: Annotated[Path, typer.Argument(help="Bundle folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")] = False,
) -> None:
    """Check BUNDLE file by file and print its manifest."""
    opened = open_bundle(bundle)
    if as_json:
        print_json(asdict(opened.manifest))
        return
    print_line(f"{opened.manifest.name}: all {len(opened.manifest.files)} files are as they were built")
    for table in (_roles(opened), _passes(opened), _files(opened)):
        print_table(table)


def _roles(bundle: Bundle) -> Table:
    table = Table("role", "from", "layers", "vocabulary", "positions", "cache", "KiB/page", "engines", title="models")
    for role, entry in bundle.manifest.roles.items():
        facts = entry.facts
        engines = ", ".join(f"{kind} ({engine.weights})" for kind, engine in entry.engines.items())
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
