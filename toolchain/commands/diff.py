"""`paceline diff`: what makes two bundles different."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ..diff_bundles import Difference, diff_bundles
from .console import print_json, print_line, print_table

__all__ = ["diff"]

DIFFERENT = 1  # as diff(1) has it; 2 stays the code of an error
MOST_ROWS = 12  # of a section on the screen; --json has them all


def diff(
    first: Annotated[Path, typer.Argument(help="Bundle folder.")],
    second: Annotated[Path, typer.Argument(help="Bundle folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print all differences as JSON.")] = False,
) -> None:
    """Compare two bundles by their manifests and figures. Exit code 0: equal, 1: different, 2: error."""
    sections = diff_bundles(first, second)
    is_equal = not any(sections.values())
    if as_json:
        rows = {name: [one.as_dict() for one in found] for name, found in sections.items()}
        print_json({"equal": is_equal, "sections": rows})
    elif is_equal:
        print_line(f"{first} and {second} are the same")
    else:
        print_table(_table(sections, first, second))
    if not is_equal:
        raise typer.Exit(DIFFERENT)


def _table(sections: Mapping[str, tuple[Difference, ...]], first: Path, second: Path) -> Table:
    table = Table("part", "what", escape(str(first)), escape(str(second)), "change", title="differences")
    for name, found in sections.items():
        for one in found[:MOST_ROWS]:
            change = "" if one.change is None else f"{100 * one.change:.3g} %"
            table.add_row(name, escape(one.where), _shown(one.first), _shown(one.second), change)
        if len(found) > MOST_ROWS:
            table.add_row(name, f"and {len(found) - MOST_ROWS} more: see --json")
        if found:
            table.add_section()
    return table


def _shown(value: object) -> str:
    """A value in a cell; of a digest its beginning."""
    text = "-" if value is None else f"{value:,}" if type(value) is int else str(value)
    is_digest = len(text) == 64 and set(text) <= set("0123456789abcdef")
    return escape(text[:16] + "…" if is_digest else text)
