"""export_model: facts, laziness, and refusals that name their reason."""

import numpy as np
import pytest
from tiny_models import FAMILIES, SIZES, RandomCheckpoint
from transformers import BloomConfig, GPT2Config, LlamaConfig, MambaConfig, Phi3Config, PretrainedConfig, T5Config

from paceline.passes.target import Target
from paceline.plugins import contract
from paceline.toolchain.errors import ArchitectureError, CheckpointError
from paceline.toolchain.export import export_model

DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}  # frequencies after the longest sequence so far


class NoWeights:
    """A checkpoint of which only the configuration is ever looked at."""

    def __init__(self, config: PretrainedConfig) -> None:
        self.config = config


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (T5Config(), "an encoder with a decoder"),
        (MambaConfig(num_hidden_layers=2, hidden_size=32, vocab_size=64), "layers of type linear_attention"),
        (PretrainedConfig(), "PreTrainedConfig cannot be exported: ValueError: Unrecognized configuration class"),
    ],
)
def test_a_configuration_is_refused_before_weights_are_looked_at(config: PretrainedConfig, message: str) -> None:
    with pytest.raises(ArchitectureError, match=message):
        export_model(NoWeights(config))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            BloomConfig(n_layer=2, hidden_size=32, n_head=4, vocab_size=64),
            "computes attention by itself in every layer",
        ),
        (LlamaConfig(**SIZES, rope_scaling=DYNAMIC), "LlamaForCausalLM cannot be exported: "),
    ],
)
def test_an_unfit_model_is_refused_with_the_root_of_the_reason(config: PretrainedConfig, message: str) -> None:
    with pytest.raises(ArchitectureError, match=message) as caught:
        export_model(RandomCheckpoint(config))
    assert len(str(caught.value)) < 1000
    assert "do: " in str(caught.value)


def test_frequencies_that_follow_the_longest_sequence_are_refused() -> None:
    """The old bug: LongRoPE exported, and a long request in a step changed the rotation of all the others."""
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 16}
    factors = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    config = Phi3Config(**{**SIZES, "hidden_size": 64}, rope_parameters={**rope, **factors})
    with pytest.raises(ArchitectureError, match="may mix the rows of different requests"):
        export_model(RandomCheckpoint(config))


def test_weights_are_compared_before_the_slow_part(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = RandomCheckpoint(FAMILIES["llama"])
    del checkpoint.weights["model.norm.weight"]
    monkeypatch.setattr("torch.export.export", lambda *a, **k: pytest.fail("exported a model without its weights"))
    with pytest.raises(CheckpointError, match=r"missing: model\.norm\.weight"):
        export_model(checkpoint)


def test_the_exported_graph_has_the_contracts_border_and_no_metadata() -> None:
    checkpoint = RandomCheckpoint(FAMILIES["llama"])
    matrices = []

    def read(name: str) -> np.ndarray:
        if checkpoint.weights[name].ndim > 1:
            matrices.append(name)
        return checkpoint.weights[name]

    checkpoint.read = read  # type: ignore[method-assign]
    exported = export_model(checkpoint, Target(cache_dtype="bfloat16", page_size=8))
    graph = exported.model.graph
    assert [(v.name, str(v.dtype), str(v.shape)) for v in (*graph.inputs, *graph.outputs)] == [
        ("input_ids", "INT64", "[T]"),
        ("positions", "INT64", "[T]"),
        ("logits", "FLOAT", "[T,96]"),
    ]
    assert graph.opset_imports[""] == contract.OPSET_VERSION
    assert matrices == []
    assert not any(node.metadata_props for node in graph)
    assert (exported.facts.page_size, exported.facts.cache_dtype) == (8, "bfloat16")


def test_the_callers_configuration_stays_as_it_was() -> None:
    """The old bug: from_config wrote the hook's name into it, and the next model built from it had no attention."""
    checkpoint = RandomCheckpoint(FAMILIES["qwen2"])
    before = checkpoint.config.to_dict()
    implementation = checkpoint.config._attn_implementation
    export_model(checkpoint)
    assert checkpoint.config.to_dict() == before
    assert checkpoint.config._attn_implementation == implementation


def test_learned_positions_work_without_any_rotation() -> None:
    """Not one of the promised families, but the claim is that none is special."""
    config = GPT2Config(n_layer=2, n_embd=32, n_head=4, n_positions=64, vocab_size=64)
    assert export_model(RandomCheckpoint(config)).facts.layers == (contract.LayerCache(kv_heads=4, head_dim=8),) * 2
