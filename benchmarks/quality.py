"""Perplexity on held-out text, and how often the likeliest token is the reference's, by engine and precision.

Rows flow in; a table of figures flows out. The reference is transformers in fp32 on the same dequantised weights. Each
process is opened for its scores alone and closed again: scores need no clock.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from contestants import REFERENCE, Row
from worker_process import WorkerError, WorkerProcess
from workloads import heldout_windows

from paceline.runtime.tokenizer import BundleTokenizer

__all__ = ["measure_quality"]


class Scores(NamedTuple):
    """Of all windows, one after the other."""

    losses: list[float]
    favourites: list[int]


def measure_quality(
    rows: Sequence[Row], tokenizer: BundleTokenizer, threads: int, log_folder: Path, tell: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """By row name: perplexity, its ratio to the reference, agreement on the likeliest token; plain rows only."""
    windows = heldout_windows(tokenizer)
    reference = score(REFERENCE, windows, threads, log_folder)
    figures = {}
    for row in (REFERENCE, *(row for row in rows if row.draft_tokens == 0)):
        try:
            scores = reference if row is REFERENCE else score(row, windows, threads, log_folder)
        except WorkerError as error:
            tell(str(error))
            continue
        figures[row.name] = compare(scores, reference)
        tell(f"perplexity {figures[row.name]['perplexity']:.4f} {row.name}")
    return figures


def score(row: Row, windows: Sequence[Sequence[int]], threads: int, log_folder: Path) -> Scores:
    """Losses and likeliest tokens of `row` on every window."""
    losses, favourites = [], []
    with WorkerProcess(row, threads, 1, log_folder) as worker:
        for window in windows:
            answer = worker.ask(do="score", window=window)
            losses += answer["losses"]
            favourites += answer["favourites"]
    return Scores(losses, favourites)


def compare(scores: Scores, reference: Scores) -> dict[str, float]:
    """Figures of one row."""
    perplexity, best = (math.exp(sum(one.losses) / len(one.losses)) for one in (scores, reference))
    same = sum(a == b for a, b in zip(scores.favourites, reference.favourites, strict=True))
    return {"perplexity": perplexity, "ratio": perplexity / best, "agreement": same / len(reference.favourites)}
