"""bind_weights: names and shapes are settled before anything is read; ties are one tensor; nothing is kept."""

import numpy as np
import onnx_ir as ir
import pytest
import torch
from tiny_models import FAMILIES, MORE_FAMILIES, RandomCheckpoint

from paceline.toolchain.bind_weights import bind_weights, check_weights
from paceline.toolchain.errors import CheckpointError

PREFIX = "causal_lm."


def checkpoint(name: str = "llama") -> RandomCheckpoint:
    return RandomCheckpoint(FAMILIES[name])


def initializers(found: RandomCheckpoint) -> ir.Graph:
    """A graph that has torch's tensors as initializers, as the exporter leaves it, and reads each once."""
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 23})
    state = {**found.model.state_dict(), **dict(found.model.named_buffers())}
    for name, tensor in state.items():
        array = ir.Tensor(tensor.numpy(), name=PREFIX + name)
        value = ir.Value(name=PREFIX + name, shape=array.shape, type=ir.TensorType(array.dtype), const_value=array)
        graph.initializers[PREFIX + name] = value
        graph.append(ir.node("Identity", [value]))
    return graph


def test_all_faults_are_named_at_once() -> None:
    found = checkpoint()
    del found.weights["model.norm.weight"], found.weights["model.layers.1.mlp.up_proj.weight"]
    found.weights["model.layers.0.self_attn.q_proj.weight"] = np.zeros((64, 31), np.float32)
    found.weights["model.layers.0.self_attn.q_proj.bias"] = np.zeros(64, np.float32)
    with pytest.raises(CheckpointError) as caught:
        check_weights(found.model, found)
    assert caught.value.found == (
        "weights missing: model.layers.1.mlp.up_proj.weight, model.norm.weight; "
        "of the wrong shape: model.layers.0.self_attn.q_proj.weight [64, 31] instead of [64, 32]; "
        "not used by the model: model.layers.0.self_attn.q_proj.bias"
    )


def test_old_rotary_frequencies_and_a_second_copy_of_a_tie_are_no_fault() -> None:
    found = checkpoint("qwen3")
    found.weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(8, np.float32)
    found.weights["lm_head.weight"] = found.weights["model.embed_tokens.weight"]
    check_weights(found.model, found)


def test_an_untied_model_needs_its_head() -> None:
    found = checkpoint("llama")
    del found.weights["lm_head.weight"]
    with pytest.raises(CheckpointError, match=r"missing: lm_head\.weight"):
        check_weights(found.model, found)


def test_initializers_read_the_checkpoint_and_have_its_names() -> None:
    found = checkpoint()
    graph = initializers(found)
    with torch.no_grad():  # the model's own tensors must not matter any more
        for parameter in found.model.parameters():
            parameter.data = torch.zeros_like(parameter)
    bind_weights(graph, found.model, PREFIX, found)
    for name, array in found.weights.items():
        value = graph.initializers[name]
        assert isinstance(value.const_value, ir.LazyTensor)
        np.testing.assert_array_equal(value.const_value.numpy(), array)
    frequencies = graph.initializers["model.rotary_emb.inv_freq"].const_value
    assert frequencies is not None
    np.testing.assert_allclose(frequencies.numpy()[:2], [1.0, 10000 ** (-1 / 8)], rtol=1e-6)


def test_tied_weights_are_one_initializer() -> None:
    found = checkpoint("qwen3")
    graph = initializers(found)
    bind_weights(graph, found.model, PREFIX, found)
    assert "lm_head.weight" not in graph.initializers
    assert len(graph.initializers["model.embed_tokens.weight"].uses()) == 2


def test_a_single_number_is_bound_as_it_is() -> None:
    """The old bug: a learned scalar, as Apertus has in its activation, has no rows to be read by."""
    found = RandomCheckpoint(MORE_FAMILIES["apertus"])
    graph = initializers(found)
    bind_weights(graph, found.model, PREFIX, found)
    name = next(name for name in found.names() if found.shape(name) == ())
    assert graph.initializers[name].const_value.numpy() == found.read(name)


def test_binding_reads_nothing() -> None:
    found = checkpoint()
    graph = initializers(found)

    def read(name: str) -> np.ndarray:
        raise AssertionError(f"{name} was read")

    found.read = read  # type: ignore[method-assign]
    bind_weights(graph, found.model, PREFIX, found)
