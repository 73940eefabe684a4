"""The root of all errors meant for a user; every folder derives its own small tree from it.

Each message has three parts: what was found, what was needed (and why), what to do.
"""

__all__ = ["PacelineError"]


class PacelineError(Exception):
    """An error that a user can act on: `found`, `needed` and `do` become one message; the CLI exits with 2."""

    def __init__(self, found: str, *, needed: str, do: str) -> None:
        super().__init__(f"found: {found}; needed: {needed}; do: {do}")
        self.found = found
        self.needed = needed
        self.do = do
