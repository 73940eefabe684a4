"""smooth_inputs: factors move from a layer's rows into its weights, and every logit stays what it was."""

from dataclasses import replace

import numpy as np
import pytest
from exports import export_of
from graph_text import graph, listing, weights
from pass_case import assert_same_numbers
from ragged import run_ragged
from tiny_models import VOCAB_SIZE

from paceline.passes import pipeline
from paceline.passes.base import run_passes
from paceline.passes.calibration import Calibration, LinearRange
from paceline.passes.precision import layers_of
from paceline.passes.smooth_inputs import smooth_inputs
from paceline.passes.smoothable import source_of
from paceline.passes.target import Target

NORMED = """(float[T,8] x) => (float[T,6] y) {
            rows = RMSNormalization <axis = -1> (x, scale)
            y = MatMul(rows, a)
        }"""
NORM_WEIGHTS = {"scale": np.linspace(0.5, 2, 8, dtype=np.float32), **weights(a=[8, 6])}
FACTORS = np.linspace(0.25, 4, 8, dtype=np.float32)


def smoothing(vector: np.ndarray, module: str = "a") -> Target:
    return Target(calibration=Calibration({module: LinearRange(1.0, np.ones(len(vector), np.float32), vector, 0.5)}))


def test_a_norm_takes_the_factors() -> None:
    before, after = graph(NORMED, **NORM_WEIGHTS), graph(NORMED, **NORM_WEIGHTS)
    (report,) = run_passes(after, smoothing(FACTORS), (smooth_inputs,))
    assert report.count == 1
    assert listing(after) == ("rows = RMSNormalization(x, scale/scaled/rows, axis=-1)\ny = MatMul(rows, a/smoothed)")
    assert_same_numbers(before, after)
    assert run_passes(after, smoothing(FACTORS), (smooth_inputs,))[0].count == 0


@pytest.mark.parametrize(
    ("vector", "reason"),
    [
        (FACTORS[:5], "y: calibration has no 8 positive factors for a"),
        (-FACTORS, "y: calibration has no 8 positive factors for a"),
    ],
)
def test_factors_that_do_not_fit_are_refused(vector: np.ndarray, reason: str) -> None:
    model = graph(NORMED, **NORM_WEIGHTS)
    (report,) = run_passes(model, smoothing(vector), (smooth_inputs,))
    assert (report.count, report.reasons) == (0, (reason,))


def test_rows_with_other_readers_are_left_alone() -> None:
    model = graph(
        NORMED.replace("y = MatMul", "z = Exp(rows)\n y = MatMul").replace("[T,6] y", "[T,6] y, float[T,8] z"),
        **NORM_WEIGHTS,
    )
    (report,) = run_passes(model, smoothing(FACTORS), (smooth_inputs,))
    assert report.reasons == ("y: rows has other readers",)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "phi3", "llama3_tied"])
def test_a_whole_model_keeps_its_logits(family: str) -> None:
    """Norms, attention's values (shared by query heads), the up half of SwiGLU, biases: all at once."""
    target = Target(weights="fp32", cache_dtype="float32", page_size=4)
    exported = export_of(family)[1]
    facts = replace(exported.facts, cache_dtype="float32", page_size=4)
    run_passes(exported.model, target, pipeline.PORTABLE)
    smoothed = exported.model.clone()
    rng = np.random.default_rng(1)
    ranges = {}
    for layer in layers_of(exported.model.graph):
        source = source_of(layer.linear)
        if not isinstance(source, str):
            vector = source.share(rng.uniform(0.3, 3, layer.linear.in_features).astype(np.float32))
            ranges[layer.module] = LinearRange(1.0, np.ones(len(vector), np.float32), vector, 0.5)
    assert len(ranges) >= 5, "too few layers can be smoothed for this to say anything"
    (report,) = run_passes(smoothed, replace(target, calibration=Calibration(ranges)), (smooth_inputs,))
    assert report.count == len(ranges)
    requests = [rng.integers(0, VOCAB_SIZE, n) for n in (28, 9, 22)]
    for (rows, wanted), (_, found) in zip(
        run_ragged(exported.model, facts, requests), run_ragged(smoothed, facts, requests), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4, err_msg=str(rows))
