"""quantize_kv_cache: pools of E4M3, scales from calibration, and logits that stay near."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from exports import export_of
from ragged import DTYPES, run_ragged
from tiny_models import VOCAB_SIZE

from paceline.passes import pipeline
from paceline.passes.base import run_passes
from paceline.passes.calibration import CacheRange, Calibration
from paceline.passes.quantize_kv_cache import quantize_kv_cache
from paceline.passes.target import Target

SEEN = Calibration(caches={0: CacheRange(64.0, 64.0), 1: CacheRange(64.0, 64.0)})
FP8 = Target(weights="fp32", cache_dtype="float8e4m3fn", page_size=4, calibration=SEEN)


@pytest.mark.parametrize("family", ["llama", "gemma3", "phi3"])
def test_logits_stay_near_over_ragged_steps(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DTYPES, "float8e4m3fn", ml_dtypes.float8_e4m3fn)
    exported = export_of(family)[1]
    run_passes(exported.model, FP8, pipeline.PORTABLE)
    small = exported.model.clone()
    (report,) = run_passes(small, FP8, (quantize_kv_cache,))
    assert report.count == 2
    assert run_passes(small, FP8, (quantize_kv_cache,))[0].count == 0
    pools = [str(value.dtype) for value in (*small.graph.inputs, *small.graph.outputs) if "kv_pages" in str(value.name)]
    assert pools == ["FLOAT8E4M3FN"] * 4
    requests = [np.random.default_rng(n).integers(0, VOCAB_SIZE, n) for n in (28, 9, 22)]
    wide, narrow = (replace(exported.facts, cache_dtype=name, page_size=4) for name in ("bfloat16", "float8e4m3fn"))
    errors = []
    for (_, wanted), (_, found) in zip(
        run_ragged(exported.model, wide, requests), run_ragged(small, narrow, requests), strict=True
    ):
        errors.append(np.sqrt(np.mean((found - wanted) ** 2) / np.mean(wanted**2)))
    assert 1e-4 < max(errors) < 0.3, (
        f"four bits of mantissa must show, and not ruin two layers of random weights: {errors}"
    )


def test_other_caches_are_left_alone_and_unseen_layers_say_so() -> None:
    exported = export_of("llama")[1]
    run_passes(exported.model, Target(weights="fp32"), pipeline.PORTABLE)
    (report,) = run_passes(exported.model, Target(weights="fp32"), (quantize_kv_cache,))
    assert (report.count, report.reasons) == (0, ())
    (report,) = run_passes(exported.model, replace(FP8, calibration=Calibration()), (quantize_kv_cache,))
    assert report.count == 0
    assert all("calibration knows no range of this layer's keys and values" in reason for reason in report.reasons)
