"""A checkpoint under the names that the model has now: files keep the names that they were written with.

A checkpoint and a model flow in; the same checkpoint flows out, its tensors called as in the model's state dict.
Published files leave out a prefix (GPT-2's), or were written before transformers renamed a head (GPT-NeoX's);
transformers knows all such renamings, and applies them when it loads. A table of our own was the alternative and lost:
it would be one per model.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from transformers import PretrainedConfig, PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightRenaming, rename_source_key

from .checkpoint import Checkpoint

__all__ = ["RenamedCheckpoint", "with_model_names"]


def with_model_names(checkpoint: Checkpoint, model: PreTrainedModel) -> Checkpoint:
    """`checkpoint` with its tensors under the names of `model`'s state dict; itself where they have them.

    Names that no renaming fits, and those whose tensors transformers would compute with, stay as they are: checking the
    weights names them.
    """
    renamings = [one for one in get_model_conversion_mapping(model) if isinstance(one, WeightRenaming)]
    state = model.state_dict()
    original: dict[str, str] = {}
    for name in checkpoint.names():
        new, _ = rename_source_key(name, renamings, [], model.base_model_prefix, state)
        original[new if new in state and new not in original else name] = name
    return checkpoint if all(new == old for new, old in original.items()) else RenamedCheckpoint(checkpoint, original)


class RenamedCheckpoint:
    """See toolchain/checkpoint.py: `Checkpoint`. `original` maps each name to the one in `checkpoint`."""

    def __init__(self, checkpoint: Checkpoint, original: Mapping[str, str]) -> None:
        self._checkpoint = checkpoint
        self._original = original
        self.config: PretrainedConfig = checkpoint.config

    def names(self) -> tuple[str, ...]:
        """The new names, sorted."""
        return tuple(sorted(self._original))

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return self._checkpoint.shape(self._original[name])

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """One tensor as float32."""
        return self._checkpoint.read(self._original[name])

    def read_rows(self, name: str, start: int, stop: int) -> npt.NDArray[np.float32]:
        """A range of one tensor's first axis."""
        return self._checkpoint.read_rows(self._original[name], start, stop)

    def digest(self) -> str:
        """The original's: names are no part of it."""
        return self._checkpoint.digest()

    def tokenizer_files(self) -> Mapping[str, bytes]:
        """The original's."""
        return self._checkpoint.tokenizer_files()
