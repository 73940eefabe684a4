"""Tiny GGUF files for tests, written the way llama.cpp's converter writes them.

In: a `RandomCheckpoint` of a tiny model, an architecture's name, and what to change. Out: a file. The converter's
habits are written down here once more, from its description, so that the reader is not tested against itself: q and k
rows of llama interleaved, Gemma's norms stored plus one, Llama 3's RoPE as a tensor of divisors.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import gguf
import numpy as np
import torch
from tiny_models import RandomCheckpoint
from tiny_tokenizers import SPECIAL_TOKENS
from tokenizers import pre_tokenizers
from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

__all__ = ["TEMPLATE", "default_metadata", "stored_tensors", "write_gguf"]

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"

Tensors = Mapping[str, np.ndarray]


def write_gguf(
    path: Path,
    architecture: str,
    checkpoint: RandomCheckpoint,
    *,
    metadata: Mapping[str, object] | None = None,
    change: Callable[[Tensors], Tensors] = lambda tensors: tensors,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    pre: str = "smollm",
    adds_bos: bool = False,
) -> Path:
    """Write `checkpoint` to `path`; matrices are stored as `kind`, text is split as `pre` says.

    `metadata`: keys without the architecture's prefix, over the default ones; None leaves one out. `change`: applied to
    the stored tensors, e.g. to drop one.
    """
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in {**default_metadata(checkpoint.config), **(metadata or {})}.items():
        _add(writer, f"{architecture}.{key}", value)
    _add_vocabulary(writer, checkpoint.config.vocab_size, pre)
    writer.add_add_bos_token(adds_bos)
    for name, weights in change(stored_tensors(architecture, checkpoint)).items():
        stored_as = kind if weights.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quantize(weights, stored_as), raw_dtype=stored_as)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def default_metadata(config: PretrainedConfig) -> dict[str, object]:
    """What a converter says of a model with `config`, without the architecture's prefix."""
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    return {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "rope.dimension_count": config.head_dim,
        "rope.freq_base": float(rope["rope_theta"]),
    }


def stored_tensors(architecture: str, checkpoint: RandomCheckpoint) -> dict[str, np.ndarray]:
    """The checkpoint's weights under GGUF names, changed as the converter changes them."""
    config = checkpoint.config
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    stored = {}
    for name in checkpoint.names():
        stem, _, kind = name.rpartition(".")
        weights = checkpoint.read(name)
        if architecture == "llama" and ".q_proj." in name:
            weights = _interleaved(weights, config.num_attention_heads)
        if architecture == "llama" and ".k_proj." in name:
            weights = _interleaved(weights, config.num_key_value_heads)
        if architecture.startswith("gemma") and "norm" in name:
            weights = weights + 1
        stored[f"{names.get_name(stem)}.{kind}"] = weights
    if architecture == "llama" and config.rope_parameters["rope_type"] == "llama3":
        stored["rope_freqs.weight"] = _rope_divisors(config)
    return stored


def _interleaved(weights: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of each head from halves (a0 a1 … b0 b1 …), as transformers rotates them, to pairs (a0 b0 a1 b1 …)."""
    first, second = np.split(weights.reshape(num_heads, -1, *weights.shape[1:]), 2, axis=1)
    return np.stack([first, second], axis=2).reshape(weights.shape)


def _rope_divisors(config: PretrainedConfig) -> np.ndarray:
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    half = config.head_dim // 2
    plain = config.rope_parameters["rope_theta"] ** (-np.arange(half) / half)
    return (plain / scaled.numpy()).astype(np.float32)


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)


def _add_vocabulary(writer: gguf.GGUFWriter, size: int, pre: str) -> None:
    """`SPECIAL_TOKENS`, single bytes, and what two of them merge into: as many as the embedding has rows."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())[: size - len(SPECIAL_TOKENS) - 1]
    tokens = [*SPECIAL_TOKENS, *letters, "AB"]
    kinds = [gguf.TokenType.CONTROL] * len(SPECIAL_TOKENS) + [gguf.TokenType.NORMAL] * (len(letters) + 1)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["A B"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    writer.add_eot_token_id(2)
    writer.add_chat_template(TEMPLATE)
