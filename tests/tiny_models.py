"""Tiny models of each family with random weights: what exporting is tested on, without any file or network.

`RandomCheckpoint(config)` is a checkpoint of a configuration of `tiny_families`, and `logits` is what transformers
itself answers. Weights are drawn large enough that a wrong window, scale or position shows.
"""

import numpy as np
import torch
from tiny_families import FAMILIES, LLAMA3_ROPE, MORE_FAMILIES, SIZES, VOCAB_SIZE, WINDOW
from transformers import AutoModelForCausalLM, PretrainedConfig

__all__ = [
    "FAMILIES",
    "LLAMA3_ROPE",
    "MORE_FAMILIES",
    "SIZES",
    "VOCAB_SIZE",
    "WINDOW",
    "RandomCheckpoint",
    "UnreadCheckpoint",
]


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


class UnreadCheckpoint:
    """A checkpoint of names and shapes, for models that are refused before a weight is read."""

    def __init__(self, config: PretrainedConfig) -> None:
        self.config = config

    def names(self) -> tuple[str, ...]:
        """State-dict names; of tied weights the first only."""
        return tuple(sorted(self._shapes()))

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one weight."""
        return self._shapes()[name]

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(self.config, attn_implementation="eager")
        model.tie_weights()
        tied = model.state_dict(keep_vars=True)
        kept = {id(tensor): name for name, tensor in reversed(tied.items())}
        return {name: tuple(tied[name].shape) for name in kept.values()}
