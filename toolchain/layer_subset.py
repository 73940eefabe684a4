"""A few layers of a checkpoint as a checkpoint of their own: a second engine where no draft has been trained.

A checkpoint and layer numbers flow in; the same tensors under renumbered names flow out, read through the original.
"""

import copy
import hashlib
import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from transformers import PretrainedConfig

from .checkpoint import Checkpoint
from .errors import RecipeError

__all__ = ["LayerSubset", "parse_layers"]

RANGE = re.compile(r"(\d+)(?:\s*-\s*(\d+))?")
LAYER = re.compile(r"(?:(?<=\blayers\.)|(?<=\bh\.))\d+(?=\.)")


def parse_layers(text: str, num_layers: int) -> tuple[int, ...]:
    """Layer numbers from "0-3" or "0,5,29" or both, in the order written.

    Raises: RecipeError for what is no list of layers, a layer that the model lacks, or one that is named twice.
    """
    layers = [layer for part in text.split(",") for layer in _layers_in(part.strip(), text)]
    if max(layers) >= num_layers or len(set(layers)) != len(layers):
        raise RecipeError(
            f"draft.layers: {text!r}",
            needed=f"each at most once, from 0 to {num_layers - 1}",
            do="correct draft.layers",
        )
    return tuple(layers)


def _layers_in(part: str, text: str) -> range:
    """One number, or a range with both ends."""
    found = RANGE.fullmatch(part)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if first > last:
        raise RecipeError(
            f"draft.layers: {text!r}", needed="numbers and rising ranges like '0-3,29'", do="correct draft.layers"
        )
    return range(first, last + 1)


class LayerSubset:
    """See toolchain/checkpoint.py: `Checkpoint`. Everything but the layers is the original's."""

    def __init__(self, checkpoint: Checkpoint, layers: tuple[int, ...]) -> None:
        self._checkpoint = checkpoint
        self._layers = layers
        self.config = _config_of(checkpoint.config, layers)
        self._original = dict(self._renamed())

    def _renamed(self) -> list[tuple[str, str]]:
        place = {layer: index for index, layer in enumerate(self._layers)}
        pairs = []
        for name in self._checkpoint.names():
            found = LAYER.search(name)
            if found is None:
                pairs.append((name, name))
            elif int(found[0]) in place:
                pairs.append((name[: found.start()] + str(place[int(found[0])]) + name[found.end() :], name))
        return pairs

    def names(self) -> tuple[str, ...]:
        """Names of the kept tensors, renumbered, sorted."""
        return tuple(sorted(self._original))

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return self._checkpoint.shape(self._original[name])

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """One tensor as float32."""
        return self._checkpoint.read(self._original[name])

    def read_rows(self, name: str, start: int, stop: int) -> npt.NDArray[np.float32]:
        """Some rows of one tensor as float32."""
        return self._checkpoint.read_rows(self._original[name], start, stop)

    def digest(self) -> str:
        """SHA-256 of the original's digest and the kept layers."""
        return hashlib.sha256(f"{self._checkpoint.digest()} layers {self._layers}".encode()).hexdigest()

    def tokenizer_files(self) -> Mapping[str, bytes]:
        """The original's."""
        return self._checkpoint.tokenizer_files()


def _config_of(config: PretrainedConfig, layers: tuple[int, ...]) -> PretrainedConfig:
    """A copy with fewer layers; lists with an entry per layer (layer_types, no_rope_layers) keep those that stay."""
    subset = copy.deepcopy(config)
    for key, value in config.to_dict().items():
        if "layer" in key and isinstance(value, list) and len(value) == config.num_hidden_layers:
            setattr(subset, key, [value[layer] for layer in layers])
    subset.num_hidden_layers = len(layers)
    return subset
