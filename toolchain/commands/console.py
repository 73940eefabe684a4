"""Where results go: JSON, a line or a table on stdout, progress on stderr."""

import json
import sys
from collections.abc import Mapping

from rich.console import Console as RichConsole
from rich.table import Table

from ..progress import Console, Progress, Silent

__all__ = ["open_progress", "print_json", "print_line", "print_table"]

WIDTH_WITHOUT_TERMINAL = 120  # rich would squeeze a table into 80 columns when its output goes into a file


def open_progress(quiet: bool) -> Progress:
    """Progress for a person, or none where a machine reads the result."""
    return Silent() if quiet else Console()


def print_json(result: Mapping[str, object]) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(json.dumps(result, indent=2, ensure_ascii=False) + "\n")


def print_line(text: str) -> None:
    """Print one result line on stdout."""
    sys.stdout.write(text + "\n")


def print_table(table: Table) -> None:
    """Print a table on stdout, as wide as the terminal."""
    RichConsole(width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL).print(table)
