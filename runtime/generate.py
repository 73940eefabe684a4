"""Text in, text out: the front door of the runtime for Python programs.

In: prompts as text or token ids. Out: `generate` returns finished completions, `stream` yields what each step added.
All prompts of a call are in flight together, and calls from several threads share the same steps. A separate offline
engine that pads a batch lost: in-flight batching serves both uses.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Protocol, TypeVar

from .completion import Completion, Job
from .drive import Delivery, Driver
from .emit import Emission
from .errors import CapacityError, RequestError
from .loop import Loop
from .request import RequestOptions, TextWriter
from .sampling_params import SamplingParams

__all__ = ["Prompt", "Runtime", "TextCodec"]

T = TypeVar("T")

Prompt = str | Sequence[int]
"""Text, or token ids that are taken as they are."""


class TextCodec(Protocol):
    """The bundle's tokenizer, both ways."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt."""

    def writer(self, params: SamplingParams) -> TextWriter:
        """A fresh writer for one request with these stop strings."""


class Runtime:
    """A loop with its thread and a tokenizer; a context manager that closes it at the end."""

    def __init__(self, loop: Loop, codec: TextCodec) -> None:
        self.loop = loop
        self.codec = codec
        self._driver = Driver(loop)

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Cancel everything in flight and end the thread."""
        self._driver.close()

    def generate(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] = SamplingParams(),  # noqa: B008 (frozen)
        options: RequestOptions | Sequence[RequestOptions] = RequestOptions(),  # noqa: B008 (frozen)
    ) -> list[Completion]:
        """Completions of all prompts, in their order; params and options are shared or one per prompt.

        Raises: RequestError when one of them can never be served; then the others are cancelled.
        """
        jobs = [
            Job(self._ids(prompt), each_params, each_options)
            for prompt, each_params, each_options in zip(
                prompts, _one_each(params, len(prompts)), _one_each(options, len(prompts)), strict=True
            )
        ]
        self._serve(jobs)
        return [job.completion() for job in jobs]

    async def stream(
        self, prompt: Prompt, params: SamplingParams, options: RequestOptions | None = None
    ) -> AsyncIterator[Emission]:
        """Emissions of one prompt as they come out; leaving the iteration cancels the request.

        Raises: RequestError, CapacityError.
        """
        event_loop, arrived = asyncio.get_running_loop(), asyncio.Queue[Delivery]()

        def listener(delivery: Delivery) -> None:
            with suppress(RuntimeError):  # the event loop has been closed: nobody is left to tell
                event_loop.call_soon_threadsafe(arrived.put_nowait, delivery)

        request = self._driver.submit(self._ids(prompt), params, options, self.codec.writer(params), listener)
        try:
            reason = None
            while reason is None:
                emission = _checked(await arrived.get())
                reason = emission.finish_reason
                yield emission
        finally:
            self._driver.cancel(request)

    def _serve(self, jobs: Sequence[Job]) -> None:
        """Hand in as many jobs as the queue takes, the rest as others end; returns when all have ended."""
        arrived: SimpleQueue[tuple[Job, Delivery]] = SimpleQueue()
        waiting, flying = deque(jobs), set[Job]()
        try:
            while waiting or flying:
                self._hand_in(waiting, flying, arrived)
                job, delivery = arrived.get()
                if job.take(_checked(delivery)):
                    flying.remove(job)
        finally:
            for job in flying:
                self._driver.cancel(job.started())

    def _hand_in(self, waiting: deque[Job], flying: set[Job], arrived: SimpleQueue[tuple[Job, Delivery]]) -> None:
        while waiting:
            job = waiting[0]
            writer = self.codec.writer(job.params)

            def listener(delivery: Delivery, job: Job = job) -> None:
                arrived.put((job, delivery))

            try:
                job.request = self._driver.submit(job.prompt_ids, job.params, job.options, writer, listener)
            except CapacityError:
                if not flying:
                    raise
                return
            flying.add(waiting.popleft())

    def _ids(self, prompt: Prompt) -> Sequence[int]:
        return self.codec.encode(prompt) if isinstance(prompt, str) else prompt


def _checked(delivery: Delivery) -> Emission:
    if isinstance(delivery, Exception):
        raise delivery
    return delivery


def _one_each(shared: T | Sequence[T], count: int) -> Sequence[T]:
    if not isinstance(shared, Sequence):
        return [shared] * count
    if len(shared) != count:
        raise RequestError(
            f"{len(shared)} settings for {count} prompts", needed="one for each, or one for all", do="match the numbers"
        )
    return shared
