"""Tiny models of each family with random weights: what exporting is tested on, without any file or network.

`FAMILIES` maps a name to a configuration; `RandomCheckpoint(config)` is a checkpoint of it, and `logits` is what
transformers itself answers. Weights are drawn large enough that a wrong window, scale or position shows.
"""

from collections.abc import Mapping

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

__all__ = ["FAMILIES", "VOCAB_SIZE", "RandomCheckpoint"]

VOCAB_SIZE = 96
NO_SPECIAL_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    **NO_SPECIAL_TOKENS,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
WINDOW = 5
GEMMA = {
    **SIZES,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"],
    "query_pre_attn_scalar": 24,
}

FAMILIES: Mapping[str, PretrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "llama3_tied": LlamaConfig(**SIZES, tie_word_embeddings=True, rope_scaling=LLAMA3_ROPE),
    "mistral": MistralConfig(**SIZES, sliding_window=WINDOW),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, tie_word_embeddings=True),
    "gemma2": Gemma2Config(**GEMMA, attn_logit_softcapping=3.0, final_logit_softcapping=4.0),
    "gemma3": Gemma3TextConfig(**GEMMA),
    "phi3": Phi3Config(**SIZES, sliding_window=None, partial_rotary_factor=0.5),
    "smollm3": SmolLM3Config(**SIZES, no_rope_layers=[1, 0]),
}


class RandomCheckpoint:
    """A checkpoint (toolchain/checkpoint.py) of random weights, always the same for one configuration."""

    def __init__(self, config: PretrainedConfig, seed: int = 0) -> None:
        self.config = config
        self.model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            offset = 1.0 if parameter.ndim == 1 and "bias" not in name else 0.0
            parameter.data = noise * (0.25 if parameter.ndim > 1 else 0.1) + offset
        tied = self.model.state_dict(keep_vars=True)
        kept = {id(tensor): name for name, tensor in reversed(tied.items())}
        self.weights = {name: tied[name].detach().numpy() for name in sorted(kept.values())}

    def names(self) -> tuple[str, ...]:
        """State-dict names; of tied weights the first only."""
        return tuple(self.weights)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one weight."""
        return self.weights[name].shape

    def read(self, name: str) -> np.ndarray:
        """One weight, float32."""
        return self.weights[name]

    def read_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """Some rows of one weight."""
        return self.weights[name][start:stop]

    def digest(self) -> str:
        """There are no files."""
        return "0" * 64

    def tokenizer_files(self) -> dict[str, bytes]:
        """There is no tokenizer."""
        return {}

    def logits(self, token_ids: np.ndarray) -> np.ndarray:
        """transformers' own answer for one whole sequence: [T, vocab]."""
        with torch.no_grad():
            out = self.model(torch.from_numpy(token_ids)[None], use_cache=False)
        return np.asarray(out.logits[0])
