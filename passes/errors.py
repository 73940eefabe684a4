"""Errors that passes raise; each names the pass, so that the blame is never in doubt.

PacelineError (plugins/errors.py)
└── PassError       a pass failed, or left a graph that does not check
    └── VerifyError a pass left a sound graph that computes something else
"""

from ..plugins.errors import PacelineError

__all__ = ["PassError", "VerifyError"]


class PassError(PacelineError):
    """A pass failed, or left a graph that does not check."""


class VerifyError(PassError):
    """A pass changed the numbers by more than it may; `figures` are those of passes/compare_rows.py."""

    def __init__(self, found: str, *, needed: str, do: str, pass_name: str, figures: tuple[object, ...] = ()) -> None:
        super().__init__(found, needed=needed, do=do)
        self.pass_name = pass_name
        self.figures = figures
