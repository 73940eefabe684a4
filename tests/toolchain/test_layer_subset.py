"""Layer subsets: the model that is left answers as the whole one does with the other layers switched off."""

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
import torch
from tiny_models import FAMILIES, VOCAB_SIZE, RandomCheckpoint
from transformers import AutoModelForCausalLM, PretrainedConfig

from paceline.toolchain.errors import RecipeError
from paceline.toolchain.layer_subset import LayerSubset, parse_layers

TOKENS = np.arange(12) * 7 % VOCAB_SIZE


def four_layers(config: PretrainedConfig) -> PretrainedConfig:
    """`config` with four layers, no two neighbours alike where a family knows several kinds."""
    config = copy.deepcopy(config)
    for key in ("layer_types", "no_rope_layers"):
        if getattr(config, key, None):
            setattr(config, key, getattr(config, key) * 2)
    config.num_hidden_layers = 4
    return config


@contextmanager
def only(model: torch.nn.Module, layers: tuple[int, ...]) -> Iterator[None]:
    """All other layers hand on what they get."""
    lists = (module for module in model.modules() if isinstance(module, torch.nn.ModuleList))
    with ExitStack() as stack:
        for place, layer in enumerate(next(lists)):
            if place not in layers:
                handle = layer.register_forward_hook(lambda module, inputs, output: inputs[0])
                stack.callback(handle.remove)
        yield


def logits_of(subset: LayerSubset) -> np.ndarray:
    model = AutoModelForCausalLM.from_config(subset.config, attn_implementation="eager", dtype=torch.float32).eval()
    weights = {name: torch.from_numpy(subset.read(name)) for name in subset.names()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert set(missing) <= {"lm_head.weight"}  # tied
    assert not unexpected
    model.tie_weights()
    with torch.no_grad():
        return model(torch.from_numpy(TOKENS)[None], use_cache=False).logits[0].numpy()


@pytest.mark.parametrize("layers", [(0, 1), (1,), (0, 3), (1, 2, 3)], ids=str)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_is_left_answers_as_the_whole_with_the_others_off(family: str, layers: tuple[int, ...]) -> None:
    whole = RandomCheckpoint(four_layers(FAMILIES[family]))
    with only(whole.model, layers):
        expected = whole.logits(TOKENS)
    np.testing.assert_allclose(logits_of(LayerSubset(whole, layers)), expected, rtol=1e-5, atol=1e-5)


def test_the_original_is_left_alone() -> None:
    whole = RandomCheckpoint(four_layers(FAMILIES["gemma3"]))
    before = whole.config.to_dict()
    LayerSubset(whole, (0, 3))
    assert whole.config.to_dict() == before


def test_lists_with_an_entry_a_layer_are_cut_and_no_others() -> None:
    """The old bug: a list of four end ids became a list of one, since the model had four layers."""
    config = four_layers(FAMILIES["smollm3"])
    config.eos_token_id = [7, 8, 9, 10]
    subset = LayerSubset(RandomCheckpoint(config), (1,)).config
    assert (subset.num_hidden_layers, subset.no_rope_layers, subset.eos_token_id) == (1, [0], [7, 8, 9, 10])


def test_shapes_are_the_originals_and_digests_differ() -> None:
    whole = RandomCheckpoint(four_layers(FAMILIES["llama"]))
    subset = LayerSubset(whole, (2,))
    name = "model.layers.{}.mlp.up_proj.weight"
    assert subset.shape(name.format(0)) == whole.shape(name.format(2))
    assert name.format(1) not in subset.names()
    digests = {whole.digest(), subset.digest(), LayerSubset(whole, (3,)).digest(), LayerSubset(whole, (2, 3)).digest()}
    assert len(digests) == 4
    assert subset.tokenizer_files() == whole.tokenizer_files()


@pytest.mark.parametrize(
    ("text", "layers"),
    [("0-3", (0, 1, 2, 3)), ("0,5,29", (0, 5, 29)), ("0-1, 28-29", (0, 1, 28, 29)), ("4", (4,)), ("3-3", (3,))],
)
def test_layers_are_numbers_and_ranges(text: str, layers: tuple[int, ...]) -> None:
    assert parse_layers(text, 30) == layers


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "0,3-1", "1,,2", "1.5", "0-30", "30", "1,1", "0-3,2"])
def test_what_is_no_list_of_layers_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, match=r"draft\.layers"):
        parse_layers(text, 30)
