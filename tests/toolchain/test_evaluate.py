"""Accuracy: the figures of known distributions, and of a model against itself."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from paceline.toolchain.evaluate import ReferenceScores, log_softmax, measure_accuracy

VOCAB = 5
WINDOWS = [[0, 1, 2, 3], [4, 0, 1]]


class Fixed:
    """Answers the same row at every position."""

    def __init__(self, row: Sequence[float]) -> None:
        self.row = np.asarray(row, np.float32)

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        return np.tile(self.row, (len(ids), 1))


def test_a_model_against_itself_differs_in_nothing(tmp_path: Path) -> None:
    uniform = Fixed([0.0] * VOCAB)
    accuracy = measure_accuracy(ReferenceScores(uniform, WINDOWS, tmp_path), uniform)
    assert accuracy.perplexity == pytest.approx(VOCAB)
    assert (accuracy.ppl_increase, accuracy.top1, accuracy.tokens) == (0.0, 1.0, 7)
    assert accuracy.kl == pytest.approx(0, abs=1e-7)


def test_figures_are_those_of_the_definitions(tmp_path: Path) -> None:
    p, q = np.array([0.4, 0.3, 0.1, 0.1, 0.1]), np.array([0.2, 0.5, 0.1, 0.1, 0.1])
    reference = ReferenceScores(Fixed(np.log(p).tolist()), WINDOWS, tmp_path)
    accuracy = measure_accuracy(reference, Fixed((np.log(q) + 3).tolist()))
    following = [token for window in WINDOWS for token in window[1:]]
    assert accuracy.perplexity == pytest.approx(np.exp(-np.log(q[following]).mean()), rel=1e-5)
    assert accuracy.reference_perplexity == pytest.approx(np.exp(-np.log(p[following]).mean()), rel=1e-5)
    assert accuracy.kl == pytest.approx((p * np.log(p / q)).sum(), rel=1e-4)
    assert accuracy.top1 == 0
    assert set(accuracy.as_dict()) >= {"kl", "top1", "ppl_increase"}


def test_large_logits_do_not_overflow() -> None:
    found = log_softmax(np.array([[1e4, 0.0, -1e4]], np.float32))
    np.testing.assert_allclose(found, [[0, -1e4, -2e4]])
