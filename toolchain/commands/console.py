"""Where results go: JSON or a line on stdout, progress on stderr."""

import json
import sys
from collections.abc import Mapping

from ..progress import Console, Progress, Silent

__all__ = ["open_progress", "print_json", "print_line"]


def open_progress(quiet: bool) -> Progress:
    """Progress for a person, or none where a machine reads the result."""
    return Silent() if quiet else Console()


def print_json(result: Mapping[str, object]) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(json.dumps(result, indent=2, ensure_ascii=False) + "\n")


def print_line(text: str) -> None:
    """Print one result line on stdout."""
    sys.stdout.write(text + "\n")
