"""How far a model's answers are from the reference's on held-out text: perplexity, KL divergence, top-1 agreement.

Two runners and windows of ids flow in; an `Accuracy` flows out. Window by window: the logits of one window are the
most that is ever held. Perplexity counts every token but a window's first, given those before it in its window.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .window_runner import Runner

__all__ = ["Accuracy", "ReferenceScores", "measure_accuracy"]

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Accuracy:
    """Of a model against the reference, over `tokens` positions.

    `kl`: mean of KL(reference || model) in nats; `top1`: share of positions with the same likeliest token.
    """

    tokens: int
    perplexity: float
    reference_perplexity: float
    kl: float
    top1: float

    @property
    def ppl_increase(self) -> float:
        """How much larger the perplexity is, as a share: 0.01 is one percent."""
        return self.perplexity / self.reference_perplexity - 1.0

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return {
            "tokens": self.tokens,
            "perplexity": round(self.perplexity, 5),
            "reference_perplexity": round(self.reference_perplexity, 5),
            "ppl_increase": round(self.ppl_increase, 6),
            "kl": round(self.kl, 7),
            "top1": round(self.top1, 5),
        }


class ReferenceScores:
    """The reference's logarithms of probabilities on every window, [T, vocab] each, kept in files.

    Asked once and compared with many: a gate that raises layers measures again and again.
    """

    def __init__(self, runner: Runner, windows: Sequence[Sequence[int]], folder: Path) -> None:
        self.windows = windows
        self._folder = folder
        for number, window in enumerate(windows):
            np.save(self._path(number), log_softmax(runner.logits(window)))

    def of(self, number: int) -> Floats:
        """Those of one window, mapped from its file."""
        return np.load(self._path(number), mmap_mode="r")  # type: ignore[no-any-return]

    def _path(self, number: int) -> Path:
        return self._folder / f"reference_{number}.npy"


def measure_accuracy(reference: ReferenceScores, runner: Runner) -> Accuracy:
    """`runner` against `reference` on the reference's windows."""
    sums = np.zeros(4)  # losses of the model, of the reference, divergence, agreements
    tokens = positions = 0
    for number, window in enumerate(reference.windows):
        p, q = reference.of(number), log_softmax(runner.logits(window))
        following = np.asarray(window[1:])
        rows = np.arange(len(following))
        sums += (
            -q[rows, following].sum(dtype=np.float64),
            -p[rows, following].sum(dtype=np.float64),
            _divergence(p, q),
            float((p.argmax(axis=1) == q.argmax(axis=1)).sum()),
        )
        tokens += len(following)
        positions += len(window)
    losses, best, divergence, same = sums.tolist()
    return Accuracy(
        positions, math.exp(losses / tokens), math.exp(best / tokens), divergence / positions, same / positions
    )


def log_softmax(logits: Floats) -> Floats:
    """Logarithms of probabilities of each row."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True, dtype=np.float64)), np.float32)


def _divergence(p: Floats, q: Floats) -> float:
    """Sum over rows of KL(p || q)."""
    return float((np.exp(p) * (p - q)).sum(dtype=np.float64))
