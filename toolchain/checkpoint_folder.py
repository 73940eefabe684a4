"""A Hugging Face folder as a checkpoint: config.json, safetensors (one file or shards with an index), tokenizer files.

The folder flows in; tensors flow out one at a time through the safetensors package, which maps files into memory.
Loading the model through transformers was the alternative and lost: it holds all weights at once.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, PretrainedConfig

from .digest import digest_of_files
from .errors import ArchitectureError, CheckpointError
from .tokenizer_files import tokenizer_files_of_folder

__all__ = ["FolderCheckpoint"]

INDEX = "model.safetensors.index.json"


class FolderCheckpoint:
    """See toolchain/checkpoint.py: `Checkpoint`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config: PretrainedConfig = _read_config(folder)
        self._file_of = _files_by_tensor(folder)

    def names(self) -> tuple[str, ...]:
        """Names of all stored tensors, sorted."""
        return tuple(sorted(self._file_of))

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        with self._open(name) as file:
            return tuple(file.get_slice(name).get_shape())

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """One tensor as float32."""
        with self._open(name) as file:
            tensor: npt.NDArray[np.float32] = file.get_tensor(name).to(torch.float32).numpy()
        return tensor

    @cached_property
    def _digest(self) -> str:
        return digest_of_files(sorted(set(self._file_of.values())))

    def digest(self) -> str:
        """SHA-256 over all weight files."""
        return self._digest

    def tokenizer_files(self) -> Mapping[str, bytes]:
        """Tokenizer, generation configuration and chat template."""
        return tokenizer_files_of_folder(self._folder, self.config)

    def _open(self, name: str) -> safe_open:
        return safe_open(self._file_of[name], framework="pt")


def _read_config(folder: Path) -> PretrainedConfig:
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            f"no config.json in {folder}", needed="a Hugging Face model folder", do="correct 'checkpoint' in the recipe"
        )
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(folder)
    except Exception as error:
        raise ArchitectureError(
            f"config.json of {folder.name} is not understood ({error})",
            needed="an architecture that the installed transformers knows",
            do="upgrade transformers, or choose another model",
        ) from error
    return config


def _files_by_tensor(folder: Path) -> dict[str, Path]:
    """Which file holds which tensor; every file is opened once, so that a damaged one is named before anything runs."""
    if (folder / INDEX).is_file():
        shards = sorted(set(json.loads((folder / INDEX).read_text())["weight_map"].values()))
    else:
        shards = sorted(path.name for path in folder.glob("*.safetensors"))
    if not shards:
        raise CheckpointError(
            f"no .safetensors in {folder}",
            needed="weights as safetensors",
            do="convert the checkpoint with save_pretrained(safe_serialization=True)",
        )
    return {name: folder / shard for shard in shards for name in _names_in(folder / shard)}


def _names_in(path: Path) -> list[str]:
    try:
        with safe_open(path, framework="pt") as file:
            return list(file.keys())
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path.name} {'cannot be read' if path.exists() else 'is missing'} ({error})",
            needed="a whole safetensors file",
            do="fetch the checkpoint again",
        ) from error
