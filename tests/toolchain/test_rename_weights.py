"""with_model_names: published files keep old names, and leave out prefixes; the model's own names are found."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_models import FAMILIES, RandomCheckpoint

from paceline.toolchain.checkpoint import open_checkpoint
from paceline.toolchain.export import export_model
from paceline.toolchain.layer_subset import LayerSubset
from paceline.toolchain.rename_weights import RenamedCheckpoint, with_model_names


def test_names_that_fit_are_left_alone() -> None:
    found = RandomCheckpoint(FAMILIES["llama"])
    assert with_model_names(found, found.model) is found


def test_a_head_that_was_renamed(tmp_path: Path) -> None:
    """GPT-NeoX files call it embed_out."""
    wanted = RandomCheckpoint(FAMILIES["gpt_neox"])
    wanted.model.save_pretrained(tmp_path)
    found = open_checkpoint(str(tmp_path))
    assert "embed_out.weight" in found.names()
    renamed = with_model_names(found, wanted.model)
    assert isinstance(renamed, RenamedCheckpoint)
    assert renamed.names() == tuple(sorted(wanted.names()))
    np.testing.assert_array_equal(renamed.read_rows("lm_head.weight", 2, 5), wanted.read("lm_head.weight")[2:5])


@pytest.fixture
def published_gpt2(tmp_path: Path) -> Path:
    """As on the hub: no prefix, and masks among the weights."""
    RandomCheckpoint(FAMILIES["gpt2"]).model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in load_file(path).items()}
    save_file({**tensors, "h.0.attn.bias": np.tril(np.ones((1, 1, 8, 8), np.float32))}, path)
    return tmp_path


def test_a_prefix_that_is_left_out(published_gpt2: Path) -> None:
    wanted = RandomCheckpoint(FAMILIES["gpt2"])
    graph = export_model(open_checkpoint(str(published_gpt2))).model.graph
    for name in ("transformer.h.1.attn.c_attn.weight", "transformer.wpe.weight"):
        tensor = graph.initializers[name].const_value
        assert tensor is not None
        np.testing.assert_array_equal(tensor.numpy(), wanted.read(name))


def test_layers_are_found_without_the_prefix(published_gpt2: Path) -> None:
    subset = LayerSubset(open_checkpoint(str(published_gpt2)), (1,))
    assert {name for name in subset.names() if name.startswith("h.")} == {
        name.replace("h.1.", "h.0.") for name in open_checkpoint(str(published_gpt2)).names() if name.startswith("h.1.")
    }
