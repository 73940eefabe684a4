"""build_memory: a build's peak by hand, and file sizes against a bundle that was really built."""

from pathlib import Path

import pytest
import yaml
from model_shapes import model_shape, recipe_of
from synthetic_checkpoints import write_checkpoint

from paceline.toolchain.build import build_bundle
from paceline.toolchain.build_memory import LAYER_BYTES, TOOLS_BYTES, file_sizes, forecast_build_peak
from paceline.toolchain.plan import plan_recipe
from paceline.toolchain.progress import Silent
from paceline.toolchain.recipe import load_recipe

OUTSIDE_WEIGHTS = 0.25  # graphs, manifest and report are estimated from another model's


def test_a_peak_is_that_of_the_tools_the_larger_graph_and_the_tokenizers() -> None:
    shapes = {"target": model_shape(5), "draft": model_shape(2)}
    assert forecast_build_peak(recipe_of(), shapes, 11) == TOOLS_BYTES + 5 * LAYER_BYTES + 2 * 30 * 11


def test_what_has_to_run_lies_in_memory() -> None:
    """Calibration runs the float32 graph without its head and looks at every input; the gate wants logits alone."""
    shapes = {"target": model_shape(2)}
    plain = forecast_build_peak(recipe_of(), shapes, 0)
    window = {"window": 64}
    calibrated = recipe_of(quantization={"weights": "int8"}, calibration=window)
    rows = 300 + 2 * 2 * 2 * 16
    observing = (2 * 100 * 40 + 6 * 64 * rows) * 4
    assert forecast_build_peak(calibrated, shapes, 0) == plain + observing
    cached = recipe_of(kv_cache={"dtype": "fp8"}, calibration=window)
    assert forecast_build_peak(cached, shapes, 0) == plain + observing
    gated = recipe_of(gates={"accuracy": {"max_kl": 0.1, **window}})
    weights = 1600 * 100 + 2 * 100 * 40 + 100 * 1600 + 300
    assert forecast_build_peak(gated, shapes, 0) == plain + (weights + 10 * 64 * 1600) * 4
    reviewed = recipe_of(quantization={"weights": "int8"}, calibration={"file": "calibration.json"})
    assert forecast_build_peak(reviewed, shapes, 0) == plain


def test_a_tied_head_is_stored_once_and_packed_once_more() -> None:
    """Where head and table differ in format, the portable graph has both."""
    tied, apart = ({"target": model_shape(is_tied=is_tied)} for is_tied in (True, False))
    graph, engine = "graph/target.onnx.data", "engines/cpu/target.onnx.data"
    both = [file_sizes(recipe_of(), shapes, {}) for shapes in (tied, apart)]
    assert both[1][graph] - both[0][graph] == -(-1600 * 100 * 2 // 4096) * 4096
    assert both[1][engine] == both[0][engine]
    other = recipe_of(quantization={"head": "fp32"})
    assert file_sizes(other, tied, {}) == file_sizes(other, apart, {})


@pytest.mark.parametrize(
    "quantization",
    [
        {"weights": "fp32"},
        {"weights": "bf16"},
        {"weights": "int8", "keep": {"*.down_proj": "bf16"}, "smoothing": "none"},
        {"weights": "int4_weight_only", "block_size": 32, "smoothing": "none"},
    ],
    ids=lambda one: one["weights"],
)
def test_files_are_as_large_as_forecast(quantization: dict[str, object], tmp_path: Path) -> None:
    """Weights to 2 %, whatever is merged, padded, kept higher or stored with scales; texts to the byte."""
    path = write_checkpoint(tmp_path / "model", hidden=256, intermediate=512, num_layers=2, vocab_size=2048)
    options = {"quantization": quantization, "calibration": {"max_tokens": 64}}
    path.write_text(yaml.safe_dump({"target": {"checkpoint": "."}, **options}))
    recipe = load_recipe(path)
    plan, bundle = plan_recipe(recipe), tmp_path / "bundle"
    build_bundle(recipe, bundle, Silent())
    found = {path.relative_to(bundle).as_posix(): path.stat().st_size for path in bundle.rglob("*") if path.is_file()}
    assert plan.files.keys() <= found.keys()
    for name, forecast in plan.files.items():
        if name.endswith(".data"):
            assert forecast == pytest.approx(found[name], rel=0.02), name
        elif name.startswith(("tokenizer", "generation")):
            assert forecast == found[name], name
        elif name.endswith(".onnx"):
            assert forecast == pytest.approx(found[name], rel=OUTSIDE_WEIGHTS), name
