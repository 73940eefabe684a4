"""The one error that passes raise: it names the pass, so that the blame is never in doubt."""

from ..plugins.errors import PacelineError

__all__ = ["PassError"]


class PassError(PacelineError):
    """A pass failed, or left a graph that does not check."""
