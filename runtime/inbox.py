"""The only door into the loop from other threads: new requests, cancellations, and the alarm clock for deadlines.

In: `put` and `cancel` from anywhere. Out: `take`, called by the loop once a step: who arrives, who leaves and why.
Looking through all waiting requests for late ones each step lost; a heap of alarms costs nothing until one rings.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

from .errors import CapacityError
from .request import FinishReason, Request

__all__ = ["Inbox", "Intake"]

Alarm = tuple[float, int, Request]
"""(when it rings, request id to break ties, whom it is for)."""


@dataclass(frozen=True, slots=True)
class Intake:
    """Changes since the last step; `leaving` may name a request twice, or one that has ended meanwhile."""

    arriving: tuple[Request, ...]
    leaving: tuple[tuple[Request, FinishReason], ...]


class Inbox:
    """Requests on their way in and out. `put` and `cancel` are thread-safe; `take` belongs to the loop's thread."""

    def __init__(self, max_queue: int) -> None:
        self._max_queue = max_queue
        self._door = threading.Lock()
        self._arriving: deque[Request] = deque()
        self._cancelled: deque[Request] = deque()
        self._deadlines: list[Alarm] = []
        self._queue_timeouts: list[Alarm] = []

    @property
    def is_empty(self) -> bool:
        """Whether `take` would find neither arrivals nor cancellations."""
        return not self._arriving and not self._cancelled

    def put(self, request: Request, num_waiting: int) -> None:
        """Hand in a new request behind `num_waiting` others that are in line already.

        Raises: CapacityError when the queue is full.
        """
        with self._door:
            num_waiting += len(self._arriving)
            if num_waiting >= self._max_queue:
                raise CapacityError(
                    f"{num_waiting} requests waiting",
                    needed=f"fewer than max_queue = {self._max_queue}",
                    do="try again later, or raise the limit max_queue",
                )
            self._arriving.append(request)

    def cancel(self, request: Request) -> None:
        """Ask for the end of a request that was handed in before; harmless when it has ended already."""
        self._cancelled.append(request)

    def take(self, now_s: float) -> Intake:
        """Everything since the last call.

        Cancellations are read first: whoever is cancelled was handed in before, so the arrivals read next hold it.
        """
        cancelled = _drain(self._cancelled)
        arriving = _drain(self._arriving)
        for request in arriving:
            self._set_alarms(request)
        leaving = [(request, FinishReason.CANCELLED) for request in cancelled]
        late = _ring(self._deadlines, now_s) + [r for r in _ring(self._queue_timeouts, now_s) if not r.has_started]
        leaving += [(request, FinishReason.TIMEOUT) for request in late]
        return Intake(tuple(arriving), tuple(leaving))

    def _set_alarms(self, request: Request) -> None:
        options = request.options
        for alarms, limit_s in ((self._deadlines, options.deadline_s), (self._queue_timeouts, options.queue_timeout_s)):
            if limit_s < math.inf:
                heappush(alarms, (request.arrival_s + limit_s, request.request_id, request))


def _ring(alarms: list[Alarm], now_s: float) -> list[Request]:
    """Take out all alarms that are due; returns whom they are for."""
    due = []
    while alarms and alarms[0][0] <= now_s:
        due.append(heappop(alarms)[2])
    return due


def _drain(queue: deque[Request]) -> list[Request]:
    return [queue.popleft() for _ in range(len(queue))]
