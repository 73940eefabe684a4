"""The conversation between the driver and one contestant: a job a line on stdin, an answer a line on stdout, as JSON.

Every contestant is a process of its own, since two thread pools in one process fight, and stays open while the others
are measured, so that all can take turns. This file runs in both environments. What libraries
print goes to stderr; a broken line would otherwise end a run of half an hour.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy

__all__ = ["Contestant", "losses_and_favourites", "serve"]


class Contestant(Protocol):
    """One engine with the demo model loaded."""

    def versions(self) -> dict[str, str]:
        """Versions of what does the work, by package."""

    def generate(self, prompts: Sequence[Sequence[int]], max_tokens: int, draft_tokens: int) -> list[list[int]]:
        """Exactly `max_tokens` greedy tokens for each prompt, all handed in at once; no cache from earlier calls.

        `draft_tokens` is the number of tokens to guess from the prompt, 0 for plain decoding.
        """

    def score(self, window: Sequence[int]) -> tuple[list[float], list[int]]:
        """For every token of `window` but the first: its negative log probability, and the likeliest token there."""


def serve(contestant: Contestant) -> None:
    """Answer jobs until stdin ends. Jobs: {"do": "versions"}, {"do": "generate", ...} and {"do": "score", ...}."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(_answer(contestant, json.loads(line))) + "\n")
        answers.flush()


def _answer(contestant: Contestant, job: dict[str, Any]) -> dict[str, Any]:
    match job["do"]:
        case "versions":
            return {"versions": contestant.versions()}
        case "score":
            losses, favourites = contestant.score(job["window"])
            return {"losses": losses, "favourites": favourites}
        case _:
            return _timed(contestant, job)


def _timed(contestant: Contestant, job: dict[str, Any]) -> dict[str, Any]:
    """`streams` 1 hands in one prompt at a time, more hands in all: the contestant was opened for so many at once."""
    prompts = job["prompts"]
    rounds = [[prompt] for prompt in prompts] if job["streams"] == 1 else [prompts]
    seconds, cpu_begin, token_ids = 0.0, time.process_time(), []
    for some in rounds:
        begin = time.perf_counter()
        outputs = contestant.generate(some, job["max_tokens"], job["draft_tokens"])
        seconds += time.perf_counter() - begin
        token_ids += outputs
    if any(len(output) != job["max_tokens"] for output in token_ids):
        raise AssertionError(f"asked for {job['max_tokens']} tokens, got {[len(output) for output in token_ids]}")
    return {"seconds": seconds, "cpu_s": time.process_time() - cpu_begin, "token_ids": token_ids}


def losses_and_favourites(logits: Any, window: Sequence[int]) -> tuple[list[float], list[int]]:
    """What `score` answers, from a NumPy array of logits [len(window), vocab]."""
    rows = logits[: len(window) - 1].astype("float64")
    highest = rows.max(axis=1)
    totals = numpy.log(numpy.exp(rows - highest[:, None]).sum(axis=1)) + highest
    taken = rows[range(len(rows)), list(window[1:])]
    return (totals - taken).tolist(), rows.argmax(axis=1).tolist()
