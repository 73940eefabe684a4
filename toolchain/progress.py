"""What a long command tells while it works: stages that begin, advance and end.

The stages flow in from `build.py` and its like, lines on stderr flow out; stdout belongs to results. A library call
gets `Silent`, the CLI gets `Console`. Logging lost: a person wants one line that moves, a machine wants none.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console as RichConsole

__all__ = ["Console", "Progress", "Silent"]


class Progress(Protocol):
    """Told of each stage; must never change what the stage does."""

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Cover one stage from its begin to its end."""
        yield


class Silent:
    """Tells nothing."""

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Cover the stage without a word."""
        yield


class Console:
    """A spinner while a stage runs, then one line with its seconds; plain lines where there is no terminal."""

    def __init__(self) -> None:
        self._console = RichConsole(stderr=True)

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Show `title` while the stage runs; a stage that fails gets no closing line."""
        begin = time.perf_counter()
        with self._console.status(title):
            yield
        self._console.print(f"[green]✓[/] {title} [dim]{time.perf_counter() - begin:.1f} s[/]", highlight=False)
