"""`paceline doctor`: what this machine can build and run, and what to install for the rest."""

from typing import Annotated

import typer
from rich.table import Table

from ..doctor import Finding, examine
from .console import print_json, print_table

__all__ = ["doctor"]


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Say what works on this machine and what to install for the rest."""
    findings = examine()
    if as_json:
        print_json({"findings": [finding.as_dict() for finding in findings]})
    else:
        print_table(_table(findings))


def _table(findings: tuple[Finding, ...]) -> Table:
    table = Table("", "what", "found", "do", box=None)
    for finding in findings:
        table.add_row("[green]✓[/]" if finding.ok else "[red]✗[/]", finding.what, finding.found, finding.do)
    return table
