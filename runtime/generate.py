"""Text in, text out: the front door of the runtime for Python programs.

In: prompts as text or token ids. Out: `generate` returns finished completions, `stream` yields what each step added.
All prompts of a call are in flight together, and calls from several threads share the same steps. A separate offline
engine that pads a batch lost: in-flight batching serves both uses.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from types import TracebackType
from typing import Protocol, TypeVar

from .chain import SampledToken
from .drive import Delivery, Driver
from .emit import Emission
from .errors import CapacityError, RequestError
from .loop import Loop
from .request import FinishReason, Request, RequestOptions, TextWriter
from .sampling_params import SamplingParams

__all__ = ["Completion", "Prompt", "Runtime", "TextCodec"]

T = TypeVar("T")

Prompt = str | Sequence[int]
"""Text, or token ids that are taken as they are."""


class TextCodec(Protocol):
    """The bundle's tokenizer, both ways."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt."""

    def writer(self, params: SamplingParams) -> TextWriter:
        """A fresh writer for one request with these stop strings."""


@dataclass(frozen=True)
class Completion:
    """One finished request. `emitted_s[i]` is when token i came out, in seconds since the request was handed in."""

    prompt_ids: tuple[int, ...]
    tokens: tuple[SampledToken, ...]
    text: str
    finish_reason: FinishReason
    emitted_s: tuple[float, ...]
    num_preemptions: int

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Output token ids, a stop token included."""
        return tuple(token.token_id for token in self.tokens)


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
            _Job(self._ids(prompt), each_params, each_options)
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

    def _serve(self, jobs: Sequence[_Job]) -> None:
        """Hand in as many jobs as the queue takes, the rest as others end; returns when all have ended."""
        arrived: SimpleQueue[tuple[_Job, Delivery]] = SimpleQueue()
        waiting, flying = deque(jobs), set[_Job]()
        try:
            while waiting or flying:
                self._hand_in(waiting, flying, arrived)
                job, delivery = arrived.get()
                if job.take(_checked(delivery)):
                    flying.remove(job)
        finally:
            for job in flying:
                self._driver.cancel(job.started())

    def _hand_in(self, waiting: deque[_Job], flying: set[_Job], arrived: SimpleQueue[tuple[_Job, Delivery]]) -> None:
        while waiting:
            job = waiting[0]
            writer = self.codec.writer(job.params)

            def listener(delivery: Delivery, job: _Job = job) -> None:
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


@dataclass(eq=False)
class _Job:
    """One prompt of a `generate` call and what has come out of it so far."""

    prompt_ids: Sequence[int]
    params: SamplingParams
    options: RequestOptions
    request: Request | None = None
    tokens: list[SampledToken] = field(default_factory=list)
    text: str = ""
    emitted_s: list[float] = field(default_factory=list)

    def started(self) -> Request:
        """Its request, which exists once it was handed in."""
        assert self.request is not None
        return self.request

    def take(self, emission: Emission) -> bool:
        """Add an emission; True when it was the last."""
        elapsed_s = time.monotonic() - emission.request.arrival_s
        self.tokens += emission.tokens
        self.text += emission.text
        self.emitted_s += [elapsed_s] * len(emission.tokens)
        return emission.finish_reason is not None

    def completion(self) -> Completion:
        """The finished job."""
        request = self.started()
        assert request.finish_reason is not None
        return Completion(
            prompt_ids=tuple(self.prompt_ids),
            tokens=tuple(self.tokens),
            text=self.text,
            finish_reason=request.finish_reason,
            emitted_s=tuple(self.emitted_s),
            num_preemptions=request.num_preemptions,
        )


def _checked(delivery: Delivery) -> Emission:
    if isinstance(delivery, Exception):
        raise delivery
    return delivery


def _one_each(shared: T | Sequence[T], count: int) -> Sequence[T]:
    if not isinstance(shared, Sequence):
        return [shared] * count
    if len(shared) != count:
        raise RequestError(f"{len(shared)} settings for {count} prompts", needed="one each, or one for all", do="match them")
    return shared
