"""`paceline doctor`: what this machine can build and run; with a bundle, whether that one runs here."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ...runtime.preflight import Check
from ..doctor import Finding, examine
from ..doctor_bundle import examine_bundle
from .console import print_json, print_table

__all__ = ["doctor"]

UNFIT = 2


def doctor(
    bundle: Annotated[Path | None, typer.Argument(help="Bundle folder: would it run here?")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Say what works on this machine and what to install for the rest; with BUNDLE, whether it runs (2: no)."""
    if bundle is None:
        findings = examine()
        rows, table = [finding.as_dict() for finding in findings], _table(findings)
        key, is_fit = "findings", True
    else:
        checks = examine_bundle(bundle)
        rows, table = [check.as_dict() for check in checks], _table_of_checks(checks)
        key, is_fit = "checks", all(check.ok for check in checks)
    if as_json:
        print_json({key: rows})
    else:
        print_table(table)
    if not is_fit:
        raise typer.Exit(UNFIT)


def _table(findings: tuple[Finding, ...]) -> Table:
    table = Table("", "what", "found", "do", box=None)
    for finding in findings:
        table.add_row(_sign(finding.ok), finding.what, finding.found, finding.do)
    return table


def _table_of_checks(checks: tuple[Check, ...]) -> Table:
    table = Table("", "what", "found", "needed", "do", box=None)
    for check in checks:
        table.add_row(_sign(check.ok), check.what, check.found, check.needed, "" if check.ok else check.do)
    return table


def _sign(ok: bool) -> str:
    return "[green]✓[/]" if ok else "[red]✗[/]"
