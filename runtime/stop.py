"""Stop strings across tokens: nothing that might become one is let out, nothing after one is kept.

Pieces of text flow in; text that is certain flows out. The first stop string to *end* wins, of those that end together
the longest: the outcome then does not depend on how the text was cut into pieces. (The first to begin would.)
"""

from collections.abc import Sequence

__all__ = ["StopScanner"]


class StopScanner:
    """Holds back at most the longest stop string less one character."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """Take more text, return what is certain; empty for ever once `stopped`."""
        if self.stopped:
            return ""
        if not self._stops:
            return text
        self._held += text
        begin = self._begin_of_stop()
        if begin is not None:
            self.stopped = True
            certain, self._held = self._held[:begin], ""
            return certain
        keep = self._length_of_hope()
        certain, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return certain

    def flush(self) -> str:
        """What was held back, when no more text will come."""
        rest, self._held = self._held, ""
        return rest

    def _begin_of_stop(self) -> int | None:
        found = [(begin + len(stop), begin) for stop in self._stops if (begin := self._held.find(stop)) >= 0]
        return min(found)[1] if found else None

    def _length_of_hope(self) -> int:
        """Length of the longest end of the held text that begins some stop string."""
        longest = max(map(len, self._stops)) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            end = self._held[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
