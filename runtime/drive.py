"""A thread that steps a loop as long as there is work, and hands every emission to whoever waits for it.

In: requests from any thread, each with a listener. Out: its emissions, in order, called from the driver's thread; if a
step fails, the error instead, to everybody. Letting each caller step the loop in turn lost: with several callers one of
them would do the work of all while its own answer lies ready.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from .emit import Emission
from .errors import CapacityError
from .loop import Loop
from .request import Request, RequestOptions, TextWriter
from .sampling_params import SamplingParams

__all__ = ["Delivery", "Driver"]

Delivery = Emission | Exception
"""What a listener gets: emissions until one carries a finish reason, or the error that ended the driver."""


class Driver:
    """Owner of a `Loop` and its thread; all methods may be called from any thread, listeners must return at once."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._changed = threading.Condition()
        self._open: dict[int, tuple[Request, Callable[[Delivery], None]]] = {}
        self._closed_by: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="paceline-loop", daemon=True)
        self._thread.start()

    def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        options: RequestOptions | None,
        writer: TextWriter | None,
        listener: Callable[[Delivery], None],
    ) -> Request:
        """Hand in a request; `listener` gets everything that comes out of it.

        Raises: RequestError, CapacityError as `Loop.submit`; what ended the driver, once it is closed or has failed.
        """
        with self._changed:
            if self._closed_by is not None:
                raise self._closed_by
            request = self._loop.submit(prompt_ids, params, options, writer)
            self._open[request.request_id] = (request, listener)
            self._changed.notify()
        return request

    def cancel(self, request: Request) -> None:
        """End a request soon; its listener gets the last emission. No effect when it has ended already."""
        with self._changed:
            if request.request_id in self._open:
                self._loop.cancel(request)
                self._changed.notify()

    def close(self) -> None:
        """Cancel everything, deliver what is left and end the thread."""
        with self._changed:
            if self._closed_by is None:
                self._closed_by = CapacityError(
                    "the runtime is closed", needed="an open one", do="open the bundle again"
                )
            for request, _ in self._open.values():
                self._loop.cancel(request)
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while self._wait_for_work():
            try:
                emissions = self._loop.step()
            except Exception as error:  # whatever it is, everybody who waits must learn of it
                self._fail(error)
                return
            for emission in emissions:
                self._deliver(emission)

    def _wait_for_work(self) -> bool:
        """Sleep until there is work; False when the driver is closed and nobody is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._loop.has_work or self._closed_by is not None)
            return self._loop.has_work

    def _deliver(self, emission: Emission) -> None:
        request_id = emission.request.request_id
        with self._changed:  # a request that is being handed in right now is registered before we look
            listener = self._open[request_id][1]
            if emission.finish_reason is not None:
                del self._open[request_id]
        listener(emission)

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._closed_by = error
            listeners = [listener for _, listener in self._open.values()]
            self._open.clear()
        for listener in listeners:
            listener(error)
