"""Hugging Face folders: saved by transformers, read back tensor for tensor; and the damage that must be named."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import FAMILIES, RandomCheckpoint

from paceline.toolchain.checkpoint import Checkpoint, open_checkpoint
from paceline.toolchain.checkpoint_folder import FolderCheckpoint
from paceline.toolchain.errors import ArchitectureError, CheckpointError
from paceline.toolchain.rename_weights import with_model_names

DOWN_PROJ = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture
def llama() -> RandomCheckpoint:
    return RandomCheckpoint(FAMILIES["llama"])


@pytest.fixture
def folder(llama: RandomCheckpoint, tmp_path: Path) -> Path:
    llama.model.save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def shards(llama: RandomCheckpoint, tmp_path: Path) -> Path:
    llama.model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    return tmp_path


def assert_same(read: Checkpoint, model: RandomCheckpoint) -> None:
    assert read.names() == tuple(sorted(model.names()))
    for name in model.names():
        assert read.shape(name) == model.shape(name)
        assert read.read(name).dtype == np.float32
        np.testing.assert_array_equal(read.read(name), model.read(name))
        np.testing.assert_array_equal(read.read_rows(name, 3, 17), model.read(name)[3:17])


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_comes_back_as_it_was_saved(family: str, tmp_path: Path) -> None:
    """A tied head is not stored, and not among the names."""
    model = RandomCheckpoint(FAMILIES[family])
    model.model.save_pretrained(tmp_path)
    read = open_checkpoint(str(tmp_path))
    assert isinstance(read, FolderCheckpoint)
    assert_same(with_model_names(read, model.model), model)
    assert type(read.config) is type(model.config)
    if hasattr(model.config, "rope_parameters"):
        assert read.config.rope_parameters == model.config.rope_parameters


def test_shards_are_read_through_their_index(shards: Path, llama: RandomCheckpoint) -> None:
    assert_same(FolderCheckpoint(shards), llama)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_exactly(dtype: torch.dtype, folder: Path, llama: RandomCheckpoint) -> None:
    llama.model.to(dtype).save_pretrained(folder)
    weights = llama.model.state_dict()[DOWN_PROJ]
    assert weights.dtype == dtype
    np.testing.assert_array_equal(FolderCheckpoint(folder).read(DOWN_PROJ), weights.float().numpy())


def test_the_digest_follows_weights_and_configuration(folder: Path) -> None:
    before = FolderCheckpoint(folder).digest()
    assert FolderCheckpoint(folder).digest() == before
    tensors = load_file(folder / "model.safetensors")
    tensors[DOWN_PROJ][0, 0] += 1
    save_file(tensors, folder / "model.safetensors")
    with_other_weights = FolderCheckpoint(folder).digest()
    assert with_other_weights != before
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))
    assert FolderCheckpoint(folder).digest() not in {before, with_other_weights}


@pytest.mark.parametrize("keep", [0, 4, 100, 5000, -1])
def test_a_truncated_file_is_refused_wherever_it_was_cut(keep: int, folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read"):
        FolderCheckpoint(folder)


def test_a_missing_shard_is_named(shards: Path) -> None:
    path = sorted(shards.glob("model-*.safetensors"))[1]
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{path.name} is missing"):
        FolderCheckpoint(shards)


def test_a_tensor_that_only_the_index_knows_is_named(shards: Path) -> None:
    index = json.loads((shards / "model.safetensors.index.json").read_text())
    index["weight_map"]["model.layers.9.ghost"] = next(iter(index["weight_map"].values()))
    (shards / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"model\.layers\.9\.ghost"):
        FolderCheckpoint(shards)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}'])
def test_a_damaged_index_is_named(text: str, shards: Path) -> None:
    (shards / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"index\.json is no index"):
        FolderCheckpoint(shards)


def test_pickled_weights_are_refused_with_the_way_out(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80")
    with pytest.raises(CheckpointError, match=r"there are pytorch_model\.bin.*save_pretrained"):
        FolderCheckpoint(folder)


def test_other_safetensors_beside_the_model_are_no_part_of_it(folder: Path, llama: RandomCheckpoint) -> None:
    """Mistral folders hold all weights twice, under two naming schemes; adapters lie beside their model."""
    save_file({"layers.0.wq": torch.zeros(2, 2)}, folder / "consolidated.safetensors")
    assert_same(FolderCheckpoint(folder), llama)


def test_quantised_checkpoints_are_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "gptq"}}))
    with pytest.raises(CheckpointError, match="quantised by gptq"):
        FolderCheckpoint(folder)


def test_tensors_that_are_no_floats_are_refused(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, DOWN_PROJ: tensors[DOWN_PROJ].to(torch.int8)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="type I8"):
        FolderCheckpoint(folder)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"model_type": "perceptron"}', '{"model_type": "llama", "hidden_size": "x"}']
)
def test_a_configuration_that_is_not_understood_is_named(text: str, folder: Path) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(ArchitectureError, match=r"config\.json of .* is not understood"):
        FolderCheckpoint(folder)


def test_a_folder_without_configuration_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        FolderCheckpoint(tmp_path)
