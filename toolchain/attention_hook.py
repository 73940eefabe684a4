"""How every model's attention becomes one `paceline::Attention` node, with no code for any model.

transformers hands each layer's queries, keys and values to a function that it looks up by name; the function here puts
down one symbolic node instead of computing. No mask function is registered under that name, so the model builds no
mask at all: causality, window and softcap are attributes. Patching model classes, or finding attention again among
the small operators of a plain export, were the alternatives and lost: both need code per model.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..plugins.contract import DOMAIN
from .errors import ArchitectureError

__all__ = ["IMPLEMENTATION", "OP_TYPE", "attention_hook", "put_down_attention"]

IMPLEMENTATION = "paceline"  # the name to build a model with: attn_implementation=IMPLEMENTATION
OP_TYPE = "Attention"

AttentionFunction = Callable[..., tuple[torch.Tensor, None]]

HARMLESS_TENSORS = frozenset({"position_ids", "cache_position", "s_aux"})  # what may arrive without changing attention


@contextmanager
def attention_hook(function: AttentionFunction | None = None) -> Iterator[list[int]]:
    """While open, models built with `attn_implementation=IMPLEMENTATION` call `function` in each layer.

    By default that is `put_down_attention`: one node a layer in an exported graph. Yields a list that grows: the layer
    of each attention that was asked for.
    """
    calls: list[int] = []

    def counted(module: torch.nn.Module, *arguments: Any, **options: Any) -> Any:
        calls.append(int(getattr(module, "layer_idx", -1)))
        return (function or put_down_attention)(module, *arguments, **options)

    ALL_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, counted)
    try:
        yield calls
    finally:
        del ALL_ATTENTION_FUNCTIONS._global_mapping[IMPLEMENTATION]


def put_down_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls instead of attention; returns [1, T, heads, head_dim] and no attention weights.

    query: [1, heads, T, head_dim]; key, value: [1, kv_heads, T, head_dim]. Of the result only the shape is real.
    Raises: ArchitectureError if the layer asks for something that the operator cannot express.
    Source: https://huggingface.co/docs/transformers/attention_interface
    """
    _check_expressible(module, query, key, value, attention_mask, options)
    _, heads, num_tokens, head_dim = query.shape
    inputs = [_token_major(tensor) for tensor in (query, key, value)]
    sinks = options.get("s_aux")
    attributes: dict[str, Any] = {
        "heads": int(heads),
        "kv_heads": int(key.shape[1]),
        "head_dim": int(head_dim),
        "scale": float(head_dim**-0.5 if scaling is None else scaling),
        "window": int(options.get("sliding_window") or 0),
        "softcap": float(options.get("softcap") or 0.0),
        "layer": int(module.layer_idx),  # type: ignore[arg-type]
        "rotary_dim": 0,
        "interleaved": 0,
    }
    out = torch.onnx.ops.symbolic(
        f"{DOMAIN}::{OP_TYPE}",
        inputs if sinks is None else [*inputs, None, sinks],
        attributes,
        dtype=query.dtype,
        shape=(1, num_tokens, heads * head_dim),
        version=1,
    )
    return out.reshape(1, num_tokens, heads, head_dim), None


def _token_major(tensor: torch.Tensor) -> torch.Tensor:
    """[1, heads, T, head_dim] -> [1, T, heads * head_dim]."""
    _, heads, num_tokens, head_dim = tensor.shape
    return tensor.transpose(1, 2).reshape(1, num_tokens, heads * head_dim)


def _check_expressible(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    options: dict[str, Any],
) -> None:
    kind = type(module).__name__
    unknown = sorted(
        name for name, option in options.items() if isinstance(option, torch.Tensor) and name not in HARMLESS_TENSORS
    )
    faults = [
        (not getattr(module, "is_causal", True) or options.get("is_causal") is False, f"{kind} is not causal"),
        (attention_mask is not None, f"{kind} brings a mask of its own"),
        (not hasattr(module, "layer_idx"), f"{kind} does not know which layer it is"),
        (
            query.shape[-1] != key.shape[-1] or key.shape != value.shape,
            f"{kind} has keys and values of different sizes",
        ),
        (key.shape[2] != query.shape[2], f"{kind} attends to another sequence"),
        (query.shape[1] % key.shape[1] != 0, f"{query.shape[1]} heads do not share {key.shape[1]} key/value heads"),
        (int(options.get("sliding_window") or 0) < 0, f"{kind} has a window of {options.get('sliding_window')} rows"),
        (bool(unknown), f"{kind} hands extra tensors to attention: {', '.join(unknown)}"),
    ]
    for is_fault, found in faults:
        if is_fault:
            raise ArchitectureError(
                found,
                needed="causal self-attention over one sequence, with window, softcap and sinks at most",
                do="choose a decoder-only model",
            )
