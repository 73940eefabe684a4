"""The attention hook: what reaches the operator, and what cannot be expressed by it."""

from typing import Any

import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from paceline.toolchain.attention_hook import IMPLEMENTATION, attention_hook, put_down_attention
from paceline.toolchain.errors import ArchitectureError


class Layer(torch.nn.Module):
    """Calls attention as a decoder layer of transformers does."""

    def __init__(self, kv_heads: int = 2, num_sinks: int = 0, **options: Any) -> None:
        super().__init__()
        self.layer_idx = 3
        self.is_causal = True
        self.kv_heads = kv_heads
        self.options = options
        self.sinks = torch.nn.Parameter(torch.zeros(num_sinks)) if num_sinks else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = x.view(1, -1, 4, 8).transpose(1, 2)
        k = q[:, : self.kv_heads]
        return put_down_attention(self, q, k, k, None, s_aux=self.sinks, **self.options)[0]


def exported_node(layer: Layer) -> Any:
    x = torch.zeros(1, 5, 32)
    exported = torch.export.export(layer, (x,), dynamic_shapes=({1: torch.export.Dim.DYNAMIC},), strict=False)
    program = torch.onnx.export(exported, (), dynamo=True, opset_version=23, optimize=False, verbose=False)
    assert program is not None
    return next(node for node in program.model.graph if node.domain == "paceline")


def test_arguments_become_attributes() -> None:
    node = exported_node(Layer(scaling=0.5, sliding_window=7, softcap=30.0))
    assert node.op_type == "Attention"
    assert {name: attribute.value for name, attribute in node.attributes.items()} == {
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 8,
        "scale": 0.5,
        "window": 7,
        "softcap": 30.0,
        "layer": 3,
        "rotary_dim": 0,
        "interleaved": 0,
    }
    assert [str(value.shape[-1]) for value in node.inputs] == ["32", "16", "16"]


def test_a_missing_scale_is_that_of_the_head() -> None:
    assert exported_node(Layer()).attributes["scale"].value == pytest.approx(8**-0.5)


def test_sinks_are_the_fifth_input() -> None:
    node = exported_node(Layer(num_sinks=4))
    assert len(node.inputs) == 5
    assert node.inputs[3] is None
    assert node.inputs[4].name == "sinks"


@pytest.mark.parametrize(
    ("kv_heads", "options", "message"),
    [
        (2, {"is_causal": False}, "Layer is not causal"),
        (3, {}, "4 heads do not share 3 key/value heads"),
        (2, {"position_bias": torch.zeros(1)}, "hands extra tensors to attention: position_bias"),
    ],
)
def test_what_the_operator_cannot_express_is_refused(kv_heads: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArchitectureError, match=message):
        Layer(kv_heads, **options)(torch.zeros(1, 5, 32))


def test_a_mask_and_values_of_another_size_are_refused() -> None:
    q = torch.zeros(1, 4, 5, 8)
    with pytest.raises(ArchitectureError, match="brings a mask of its own"):
        put_down_attention(Layer(), q, q, q, torch.zeros(1, 1, 5, 5))
    with pytest.raises(ArchitectureError, match="keys and values of different sizes"):
        put_down_attention(Layer(), q, q, q[..., :4], None)
    with pytest.raises(ArchitectureError, match="attends to another sequence"):
        put_down_attention(Layer(), q, q[:, :, :3], q[:, :, :3], None)


def test_the_hook_leaves_nothing_behind() -> None:
    with attention_hook():
        assert IMPLEMENTATION in ALL_ATTENTION_FUNCTIONS
    assert IMPLEMENTATION not in ALL_ATTENTION_FUNCTIONS
