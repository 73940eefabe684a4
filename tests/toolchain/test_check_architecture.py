"""check_architecture: models that would export without a word and answer wrongly are refused with the reason."""

import onnx_ir as ir
import pytest
from graph_text import graph, weights
from transformers import LlamaConfig, MambaConfig, MistralConfig, MixtralConfig, PretrainedConfig, T5Config
from transformers.models.llama4 import Llama4TextConfig

from paceline.toolchain.check_architecture import attention_nodes, check_attention, check_config, check_rows_apart
from paceline.toolchain.errors import ArchitectureError

ATTENTION = (
    "paceline.Attention<heads = 1, kv_heads = 1, head_dim = 4, scale = 0.5, window = {window}, softcap = 0.0, "
    "rotary_dim = 0, interleaved = 0, layer = {layer}>"
)


def model(*windows: int, tail: str = "logits = Squeeze(last, zero)") -> ir.Model:
    """A graph with one attention a layer, of these windows, and `tail` behind the last."""
    names = ["x0", *(f"x{layer}" for layer in range(1, len(windows))), "last"]
    layers = [
        f"{names[layer + 1]} = {ATTENTION.format(window=window, layer=layer)}({names[layer]}, {names[layer]}, q{layer})"
        f"  q{layer} = Neg({names[layer]})"
        for layer, window in enumerate(windows)
    ]
    layers = ["  ".join(reversed(layer.split("  "))) for layer in layers]
    body = "  ".join(["ids = Unsqueeze(input_ids, zero)", "x0 = Gather(table, ids)", *layers, tail])
    constants = {**weights(table=[9, 4], kernel=[4, 4, 1]), "zero": [0], "axis": [1], "last_axis": [2]}
    used = {name: array for name, array in constants.items() if f" {name})" in body or f"({name}," in body}
    made = graph(f"(int64[T] input_ids, int64[T] positions) => (logits) {{ {body} }}", **used)
    for node in made.graph:
        if node.outputs[0].shape is None:
            node.outputs[0].shape = ir.Shape([1, "T", 4])
    made.graph.outputs[0].shape = ir.Shape(["T", 4])
    return made


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (T5Config(), "T5Config describes an encoder with a decoder"),
        (MambaConfig(num_hidden_layers=2), "MambaConfig has layers of type linear_attention"),
        (MixtralConfig(), r"MixtralConfig is a mixture of experts \(num_local_experts = 8\)"),
        (
            Llama4TextConfig(num_hidden_layers=4, num_local_experts=1),
            "Llama4TextConfig has layers of type chunked_attention",
        ),
    ],
)
def test_configurations_that_give_it_away(config: PretrainedConfig, message: str) -> None:
    with pytest.raises(ArchitectureError, match=message):
        check_config(config)


def test_every_layer_needs_its_attention() -> None:
    graph_of_two = model(0, 0).graph
    assert sorted(attention_nodes(graph_of_two)) == [0, 1]
    check_attention(graph_of_two, LlamaConfig(num_hidden_layers=2))
    with pytest.raises(ArchitectureError, match=r"attention in layers \[0, 1\] of 3"):
        check_attention(graph_of_two, LlamaConfig(num_hidden_layers=3))


def test_attention_of_a_models_own_and_two_in_a_layer_are_named() -> None:
    none = graph("(float[T,4] x) => (float[T,4] y) { y = Relu(x) }").graph
    with pytest.raises(ArchitectureError, match="LlamaConfig computes attention by itself in every layer"):
        check_attention(none, LlamaConfig(num_hidden_layers=2))
    twice = model(0, 0).graph
    for node in twice:
        if node.op_type == "Attention":
            node.attributes["layer"] = ir.AttrInt64("layer", 0)
    with pytest.raises(ArchitectureError, match="calls attention 2 times in 1 layers"):
        check_attention(twice, LlamaConfig(num_hidden_layers=2))


def test_a_window_that_only_a_mask_would_enforce_is_missed() -> None:
    check_attention(model(7, 7).graph, MistralConfig(num_hidden_layers=2, sliding_window=7))
    with pytest.raises(ArchitectureError, match="layer 1 hands the window 0 to attention; needed: 7"):
        check_attention(model(7, 0).graph, MistralConfig(num_hidden_layers=2, sliding_window=7))
    with pytest.raises(ArchitectureError, match="layer 0 hands the window 7 to attention; needed: 0"):
        check_attention(model(7, 7).graph, LlamaConfig(num_hidden_layers=2))


def test_rows_meet_in_attention_only() -> None:
    check_rows_apart(model(0, 0).graph)


@pytest.mark.parametrize(
    "tail",
    [
        "shifted = Conv(last, kernel)  logits = Squeeze(shifted, zero)",
        "summed = CumSum(last, axis)  logits = Squeeze(summed, zero)",
        "mean = ReduceMean<keepdims = 1>(last, axis)  both = Sub(last, mean)  logits = Squeeze(both, zero)",
        "most = ReduceMax<keepdims = 0>(last)  both = Mul(last, most)  logits = Squeeze(both, zero)",
        "t = Transpose<perm = [0, 2, 1]>(last)  s = MatMul(last, t)  o = MatMul(s, last)  logits = Squeeze(o, zero)",
    ],
)
def test_rows_that_meet_elsewhere_are_noticed(tail: str) -> None:
    with pytest.raises(ArchitectureError, match="may mix the rows of different requests"):
        check_rows_apart(model(0, tail=tail).graph)
