"""The command line: one table of verbs, one place where errors become exit codes.

Arguments flow in; each verb lives in `commands/<verb>.py` and is a function with its options as parameters. Exit code
0: done. 2: an error that the user can act on, printed as found / needed / do, without a stack trace. 1: a bug of ours,
or two bundles that differ (`diff`).
"""

import sys
from collections.abc import Callable

import typer
from rich.console import Console

from ..plugins.errors import PacelineError
from .commands.bench import bench
from .commands.build import build
from .commands.demo import demo
from .commands.diff import diff
from .commands.doctor import doctor
from .commands.export import export
from .commands.inspect import inspect
from .commands.optimize import optimize
from .commands.plan import plan
from .commands.run import run
from .commands.sign import sign
from .commands.verify import verify

__all__ = ["app", "main"]

VERBS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("plan", plan),
    ("build", build),
    ("run", run),
    ("bench", bench),
    ("inspect", inspect),
    ("diff", diff),
    ("sign", sign),
    ("verify", verify),
    ("doctor", doctor),
    ("demo", demo),
    ("export", export),
    ("optimize", optimize),
)
ALIASES: tuple[tuple[str, Callable[..., None]], ...] = (("build-engine", build),)

app = typer.Typer(
    name="paceline",
    help="Compile a target model and its draft into one bundle, and ride them together.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _name, _verb in VERBS:
    app.command(_name)(_verb)
for _name, _verb in ALIASES:
    app.command(_name, hidden=True)(_verb)


def main() -> None:
    """Run the command line; the only place that turns an error into an exit code."""
    try:
        app()
    except PacelineError as error:
        _print_error(error)
        sys.exit(2)


def _print_error(error: PacelineError) -> None:
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    console.print(f"paceline: {type(error).__name__}", style="bold red")
    for part in ("found", "needed", "do"):
        console.print(f"  {part + ':':<8}{getattr(error, part)}")
