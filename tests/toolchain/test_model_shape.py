"""model_shape: what a model without weights tells is what its checkpoint and its export say."""

import pytest
from tiny_models import FAMILIES, RandomCheckpoint
from transformers import LlamaConfig, Qwen3Config

from paceline.toolchain.errors import ArchitectureError, CheckpointError
from paceline.toolchain.export import export_model
from paceline.toolchain.model_shape import Matrix, shape_of


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_weight_is_counted_once(family: str) -> None:
    checkpoint = RandomCheckpoint(FAMILIES[family])
    shape = shape_of(checkpoint)
    assert shape.elements == sum(checkpoint.weights[name].size for name in checkpoint.names())


@pytest.mark.parametrize("family", ["llama3_tied", "gemma3"])
def test_facts_are_those_of_the_export(family: str) -> None:
    checkpoint = RandomCheckpoint(FAMILIES[family])
    shape, facts = shape_of(checkpoint), export_model(checkpoint).facts
    assert shape.layers == facts.layers
    for name in ("vocab_size", "hidden_size", "max_positions"):
        assert getattr(shape, name) == getattr(facts, name)


def test_matrices_have_the_names_that_recipes_use_and_inputs_count_once() -> None:
    """Hidden 32, 4 heads of 16, two kv heads, inner size 48: q, k, v and gate, up read one input each."""
    shape = shape_of(RandomCheckpoint(FAMILIES["llama"]))
    assert shape.matrices[:2] == (
        Matrix("model.layers.0.self_attn.q_proj", 32, 64),
        Matrix("model.layers.0.self_attn.k_proj", 32, 32),
    )
    assert shape.matrices[-1] == Matrix("lm_head", 32, 96)
    assert shape.matrices[-1].is_head
    assert shape.input_elements == 2 * (32 + 64 + 32 + 48) + 32


def test_a_tied_head_is_marked() -> None:
    config = Qwen3Config(**{**FAMILIES["qwen3"].to_dict(), "tie_word_embeddings": True})
    assert [one.module for one in shape_of(RandomCheckpoint(config)).matrices if one.is_shared] == ["lm_head"]


def test_what_a_build_would_refuse_is_refused() -> None:
    checkpoint = RandomCheckpoint(FAMILIES["llama"])
    del checkpoint.weights["model.norm.weight"]
    with pytest.raises(CheckpointError, match=r"missing: model\.norm\.weight"):
        shape_of(checkpoint)
    checkpoint = RandomCheckpoint(FAMILIES["llama"])
    checkpoint.config = LlamaConfig(**{**checkpoint.config.to_dict(), "layer_types": ["chunked_attention"] * 2})
    with pytest.raises(ArchitectureError):
        shape_of(checkpoint)
