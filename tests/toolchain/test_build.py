"""Building a bundle: whole or not at all, byte for byte the same twice, and refused early where it cannot work."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_bundles import tiny_bundle, tiny_checkpoint, tiny_recipe

from paceline.passes import sliced_tensor
from paceline.plugins.errors import PacelineError
from paceline.runtime.bundle import open_bundle
from paceline.toolchain.build import build_bundle
from paceline.toolchain.diff_bundles import diff_bundles
from paceline.toolchain.errors import ArchitectureError, CheckpointError, RecipeError, VocabularyError
from paceline.toolchain.progress import Silent
from paceline.toolchain.recipe import load_recipe

MEASURED = "reports/build.json"
BUILD = """
import sys
from pathlib import Path
from paceline.toolchain.build import build_bundle
from paceline.toolchain.progress import Silent
from paceline.toolchain.recipe import load_recipe
build_bundle(load_recipe(Path(sys.argv[1])), Path(sys.argv[2]), Silent())
"""


def refused(recipe: Path, error: type[PacelineError], *words: str) -> None:
    """The build fails with `error`, and leaves nothing behind."""
    folder = recipe.parent
    before = sorted(folder.iterdir())
    with pytest.raises(error) as caught:
        build_bundle(load_recipe(recipe), folder / "bundle", Silent())
    for word in words:
        assert word in str(caught.value)
    assert sorted(folder.iterdir()) == before, "something half-built was left behind"


def test_a_bundle_holds_what_the_design_says(tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle(tmp_path))
    assert set(bundle.manifest.files) == {
        "chat_template.jinja",
        "engines/cpu/draft.onnx",
        "engines/cpu/draft.onnx.data",
        "engines/cpu/target.onnx",
        "engines/cpu/target.onnx.data",
        "generation_config.json",
        "graph/draft.onnx",
        "graph/draft.onnx.data",
        "graph/target.onnx",
        "graph/target.onnx.data",
        "reports/accuracy.json",
        "reports/build.json",
        "tokenizer.json",
    }
    assert len(bundle.role("target").facts.layers) == 3
    assert len(bundle.role("draft").facts.layers) == 2
    assert json.loads(bundle.read_text("reports/build.json") or "")["peak_bytes"] > 0


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    """Byte for byte: whatever hashes, sets, clocks or folders get into a graph or the manifest would differ.

    Only the report with the build's seconds and memory may, and with it the manifest's digests of it and of itself.
    """
    recipe = tiny_recipe(tmp_path)
    for name, seed in (("one", "1"), ("two", "2")):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", BUILD, str(recipe), str(tmp_path / name / "bundle")]
        subprocess.run(command, check=True, timeout=300, env=environment)
    one, two = (tmp_path / name / "bundle" for name in ("one", "two"))
    names = {name for name in open_bundle(one).manifest.files if name != MEASURED}
    assert len([name for name in names if name.startswith(("graph/", "engines/"))]) == 8
    for name in sorted(names):
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    assert not any(diff_bundles(one, two).values())
    assert unmeasured(one) == unmeasured(two)


def unmeasured(bundle: Path) -> dict:
    """The manifest as JSON, without what depends on the measured report."""
    content = json.loads((bundle / "manifest.json").read_text())
    del content["files"][MEASURED], content["manifest_sha256"]
    return content


def test_slices_of_any_size_write_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice that forgot an offset, or packed half a panel, would show in one of these files."""
    files = []
    for elements in (1 << 30, 1000):
        monkeypatch.setattr(sliced_tensor, "SLICE_ELEMENTS", elements)
        manifest = open_bundle(tiny_bundle(tmp_path, quantization={"weights": "int8"})).manifest
        files.append({name: file for name, file in manifest.files.items() if name.endswith(".data")})
    assert files[0] == files[1]


def test_a_bundle_that_is_there_is_replaced_and_a_folder_is_not(tmp_path: Path) -> None:
    first = open_bundle(tiny_bundle(tmp_path)).manifest
    second = open_bundle(tiny_bundle(tmp_path, quantization={"weights": "int8"})).manifest
    assert first.roles["target"].engines["cpu"].weights == "bf16"
    assert second.roles["target"].engines["cpu"].weights == "int8"
    shutil.rmtree(tmp_path / "bundle")
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "precious.txt").write_text("mine")
    refused(tmp_path / "recipe.yaml", RecipeError, "is no bundle")


def test_a_longest_sequence_is_kept_and_one_beyond_the_model_refused(tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle(tmp_path, runtime={"max_seq_len": 100}))
    assert bundle.role("target").facts.max_positions == 100
    shutil.rmtree(tmp_path / "bundle")
    refused(tiny_recipe(tmp_path, runtime={"max_seq_len": 513}), RecipeError, "at most 512")


def test_a_pass_can_be_switched_off_and_a_wrong_name_is_refused(tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle(tmp_path, passes={"merge_qkv": {"enabled": False}}))
    assert "merge_qkv" not in [one.name for one in bundle.role("target").passes]
    shutil.rmtree(tmp_path / "bundle")
    refused(tiny_recipe(tmp_path, passes={"merge_qvk": {"enabled": False}}), RecipeError, "did you mean 'merge_qkv'")
    refused(tiny_recipe(tmp_path, passes={"name_bindings": {"enabled": False}}), RecipeError, "leave it enabled")


def test_missing_and_misshapen_weights_are_named(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path)
    file = tmp_path / "model" / "model.safetensors"
    weights = load_file(file)
    norm = "model.layers.1.input_layernorm.weight"
    save_file({name: tensor for name, tensor in weights.items() if name != norm}, file, {"format": "pt"})
    refused(recipe, CheckpointError, norm)
    save_file({**weights, norm: torch.ones(7)}, file, {"format": "pt"})
    refused(recipe, CheckpointError, norm, "[7]", "[64]")


def test_truncated_weights_are_refused(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path)
    file = tmp_path / "model" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    refused(recipe, CheckpointError, "model.safetensors")


def test_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path)
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": "perceptron"}))
    refused(recipe, ArchitectureError, "perceptron")


def test_a_draft_of_another_vocabulary_is_refused_with_the_first_id(tmp_path: Path) -> None:
    tiny_checkpoint(tmp_path / "draft", num_layers=1)
    tokenizer = tmp_path / "draft" / "tokenizer.json"
    content = json.loads(tokenizer.read_text())
    vocab = content["model"]["vocab"]
    first, second = (token for token, token_id in vocab.items() if token_id in (40, 41))
    vocab[first], vocab[second] = vocab[second], vocab[first]
    tokenizer.write_text(json.dumps(content))
    refused(tiny_recipe(tmp_path, draft={"checkpoint": "draft"}), VocabularyError, "id 40")


def test_layers_that_the_target_lacks_are_refused(tmp_path: Path) -> None:
    refused(tiny_recipe(tmp_path, draft={"checkpoint": "target", "layers": "0-9"}), RecipeError, "from 0 to 2")
