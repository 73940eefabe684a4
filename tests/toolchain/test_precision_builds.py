"""Bundles of a tiny model in every format, through calibration, gate and engine: the whole path of precision."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiny_bundles import tiny_bundle, tiny_recipe

from paceline.passes.calibration import roles_from_json
from paceline.passes.number_formats import FORMATS
from paceline.runtime.bundle import open_bundle
from paceline.runtime.open import Settings, open_runtime
from paceline.runtime.sampling_params import SamplingParams
from paceline.toolchain.build import build_bundle
from paceline.toolchain.check_precision import formats_in
from paceline.toolchain.errors import GateError, PrecisionError, RecipeError
from paceline.toolchain.graph_file import open_graph
from paceline.toolchain.progress import Silent
from paceline.toolchain.recipe import load_recipe

GATE = {"max_kl": 3.0, "max_tokens": 400, "window": 64}
CALIBRATION = {"max_tokens": 400, "window": 64}


def build(folder: Path, **parts: object) -> Path:
    return tiny_bundle(folder, calibration=CALIBRATION, draft=None, **parts)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_format_builds_gates_and_answers(tmp_path: Path, name: str) -> None:
    folder = build(tmp_path, quantization={"weights": name, "block_size": 32}, gates={"accuracy": GATE})
    bundle = open_bundle(folder)
    report = json.loads(bundle.read_text("reports/accuracy.json") or "")["target"]
    assert report["gate"]["passed"]
    measured = report["gate"]["measured"]
    assert measured["portable"]["kl"] == pytest.approx(measured["engine"]["kl"], abs=0.02), "two runs of one meaning"
    assert measured["engine"]["kl"] < {"fp32": 1e-4, "bf16": 1e-2, "fp16": 1e-2}.get(name, 0.6)
    found = formats_in(open_graph(folder / "graph" / "target.onnx"))
    assert found == report["layers"]
    assert {one for module, one in found.items() if module != "lm_head"} == {name}
    with open_runtime(folder, Settings(kv_cache_bytes=1 << 20)).runtime as runtime:
        (result,) = runtime.generate([[5, 6, 7]], SamplingParams(max_tokens=4))
    assert 0 < len(result.token_ids) <= 4


def test_calibration_lies_in_the_bundle_and_can_be_used_again(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    first = build(tmp_path / "a", quantization={"weights": "fp8"})
    text = (first / "calibration.json").read_text()
    ranges = roles_from_json(text)["target"]
    assert len(ranges.linears) == 3 * 4 + 1
    assert all(one.largest > 0 for one in ranges.linears.values())
    (tmp_path / "b").mkdir()
    again = {"file": str(first / "calibration.json")}
    second = tiny_bundle(tmp_path / "b", calibration=again, draft=None, quantization={"weights": "fp8"})
    assert (second / "calibration.json").read_text() == text
    for name in ("graph/target.onnx", "graph/target.onnx.data", "engines/cpu/target.onnx.data"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_a_calibration_of_another_size_is_refused_by_name(tmp_path: Path) -> None:
    bundle = build(tmp_path, quantization={"weights": "int8"})
    raw = json.loads((bundle / "calibration.json").read_text())
    module = "model.layers.1.mlp.down_proj"
    raw["target"]["linears"][module]["mean_square"].pop()
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(raw))
    recipe = tiny_recipe(tmp_path, calibration={"file": str(changed)}, draft=None, quantization={"weights": "int8"})
    with pytest.raises(RecipeError, match=rf"calibration of {module}: mean_square has shape \[95\]; needed: 96"):
        build_bundle(load_recipe(recipe), tmp_path / "other", Silent())
    changed.write_text("{}")
    with pytest.raises(RecipeError, match="is no calibration of the target"):
        build_bundle(load_recipe(recipe), tmp_path / "other", Silent())
    assert not (tmp_path / "other").exists()


def test_a_gate_that_does_not_hold_leaves_figures_and_no_bundle(tmp_path: Path) -> None:
    gate = {**GATE, "max_kl": 1e-9}
    recipe = tiny_recipe(tmp_path, quantization={"weights": "bf16"}, draft=None, gates={"accuracy": gate})
    with pytest.raises(GateError, match=r"portable: KL .*, at most 1e-09; engine: KL .*bundle\.failed/accuracy\.json"):
        build_bundle(load_recipe(recipe), tmp_path / "bundle", Silent())
    assert not (tmp_path / "bundle").exists()
    report = json.loads((tmp_path / "bundle.failed" / "accuracy.json").read_text())
    assert report["target"]["gate"]["passed"] is False


def test_layers_are_raised_until_the_gate_holds(tmp_path: Path) -> None:
    """int4 alone is far off; the report says which layers went up and what they cost, and the graph has them so."""
    quantization = {"weights": "int4_weight_only", "block_size": 128}
    parts = {"quantization": quantization, "calibration": CALIBRATION, "draft": None}
    (tmp_path / "plain").mkdir()
    plain = tiny_bundle(tmp_path / "plain", gates={"accuracy": GATE}, **parts)
    kl = json.loads((plain / "reports/accuracy.json").read_text())["target"]["gate"]["measured"]["engine"]["kl"]
    (tmp_path / "raised").mkdir()
    gate = {**GATE, "max_kl": kl / 3, "on_failure": "raise_layers"}
    raised = tiny_bundle(tmp_path / "raised", gates={"accuracy": gate}, **parts)
    report = json.loads((raised / "reports/accuracy.json").read_text())["target"]
    names = [one["module"] for one in report["gate"]["raised"]]
    assert 0 < len(names) < 13
    assert report["gate"]["measured"]["engine"]["kl"] <= kl / 3
    assert {report["layers"][name] for name in names} == {"bf16"}
    errors = [one["error"] for one in report["gate"]["ranking"]]
    assert errors == sorted(errors, reverse=True)
    assert report["gate"]["raised_bytes"] == sum(one["added_bytes"] for one in report["gate"]["raised"]) > 0


def test_a_format_that_did_not_arrive_is_an_error(tmp_path: Path) -> None:
    """Asked for fp8, and a switched-off pass leaves fp32: refused by what stands in the graph, not by the flag."""
    recipe = tiny_recipe(
        tmp_path,
        quantization={"weights": "fp8"},
        draft=None,
        calibration=CALIBRATION,
        passes={"quantize_fp8": {"enabled": False}},
    )
    with pytest.raises(PrecisionError, match=r"12 layers are not in the format that was asked for: .* is fp32"):
        build_bundle(load_recipe(recipe), tmp_path / "bundle", Silent())


def test_weights_that_are_smaller_make_smaller_files(tmp_path: Path) -> None:
    sizes = {}
    for name in ("fp32", "bf16", "int8", "int4_weight_only"):
        (tmp_path / name).mkdir()
        folder = build(tmp_path / name, quantization={"weights": name, "head": name, "embedding": "bf16"})
        sizes[name] = (folder / "graph" / "target.onnx.data").stat().st_size
    assert sizes["fp32"] > sizes["bf16"] > sizes["int8"] > sizes["int4_weight_only"]
    assert np.all(np.diff(list(sizes.values())) < 0)


def test_a_cache_in_fp8_has_scales_and_half_the_pages_bytes(tmp_path: Path) -> None:
    (tmp_path / "bf16").mkdir()
    wide = open_bundle(build(tmp_path / "bf16")).role("target").facts
    (tmp_path / "fp8").mkdir()
    folder = build(tmp_path / "fp8", kv_cache={"dtype": "fp8"}, gates={"accuracy": GATE})
    bundle = open_bundle(folder)
    assert bundle.role("target").facts.page_bytes * 2 == wide.page_bytes
    measured = json.loads(bundle.read_text("reports/accuracy.json") or "")["target"]["gate"]["measured"]
    assert measured["portable"]["kl"] == pytest.approx(measured["engine"]["kl"], abs=0.01)
    assert 1e-6 < measured["engine"]["kl"] < 0.1, "E4M3 must show, and must not hurt much"
    caches = roles_from_json((folder / "calibration.json").read_text())["target"].caches
    assert sorted(caches) == [0, 1, 2]
    assert all(one.key > 0 and one.value > 0 for one in caches.values())
    with open_runtime(folder, Settings(kv_cache_bytes=1 << 20)).runtime as runtime:
        (alone,) = runtime.generate([[5, 6, 7]], SamplingParams(max_tokens=20))
        together = runtime.generate([[5, 6, 7], [9, 8], list(range(5, 60))], SamplingParams(max_tokens=20))
    assert together[0].token_ids == alone.token_ids
