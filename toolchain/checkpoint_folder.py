"""A Hugging Face folder as a checkpoint: config.json, safetensors (one file or shards with an index), tokenizer files.

The folder flows in; tensors flow out one at a time through the safetensors package, which maps files into memory.
Loading the model through transformers was the alternative and lost: it holds all weights at once.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, PretrainedConfig

from .checkpoint import check_num_layers
from .digest import digest_of_files
from .errors import ArchitectureError, CheckpointError
from .tokenizer_files import tokenizer_files_of_folder

__all__ = ["FolderCheckpoint"]

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"[\w.-]+\.safetensors", re.ASCII)
DTYPES = frozenset({"BF16", "F16", "F32"})  # of safetensors; all are exact in float32


class FolderCheckpoint:
    """See toolchain/checkpoint.py: `Checkpoint`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config: PretrainedConfig = _read_config(folder)
        self._file_of = _files_by_tensor(folder)
        check_num_layers(self.config, len(self._file_of), folder.name)

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

    def read_rows(self, name: str, start: int, stop: int) -> npt.NDArray[np.float32]:
        """Some rows of one tensor as float32; the rest of the file is not touched."""
        with self._open(name) as file:
            rows: npt.NDArray[np.float32] = file.get_slice(name)[start:stop].to(torch.float32).numpy()
        return rows

    def digest(self) -> str:
        """SHA-256 over config.json and all weight files."""
        return digest_of_files([self._folder / CONFIG, *sorted(set(self._file_of.values()))])

    def tokenizer_files(self) -> Mapping[str, bytes]:
        """Tokenizer, generation configuration and chat template."""
        return tokenizer_files_of_folder(self._folder, self.config)

    def _open(self, name: str) -> safe_open:
        return safe_open(self._file_of[name], framework="pt")


def _read_config(folder: Path) -> PretrainedConfig:
    if not (folder / CONFIG).is_file():
        raise CheckpointError(
            f"no {CONFIG} in {folder}", needed="a Hugging Face model folder", do="correct 'checkpoint' in the recipe"
        )
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # each configuration class checks in its own way
        raise ArchitectureError(
            f"{CONFIG} of {folder.name} is not understood ({error})",
            needed="an architecture that the installed transformers knows",
            do="upgrade transformers, or choose another model",
        ) from error
    if getattr(config, "quantization_config", None):
        raise CheckpointError(
            f"{folder.name} is quantised by {config.quantization_config.get('quant_method', 'some method')}",
            needed="weights as float32, float16 or bfloat16; quantising is the build's work",
            do="give the original checkpoint",
        )
    return config


def _files_by_tensor(folder: Path) -> dict[str, Path]:
    """Which file holds which tensor; every file is opened once, so that a damaged one is named before anything runs."""
    if not (folder / INDEX).is_file():
        return dict.fromkeys(_names_in(folder / SINGLE), folder / SINGLE)
    file_of = {name: folder / shard for name, shard in _read_index(folder / INDEX).items()}
    found = {path: set(_names_in(path)) for path in sorted(set(file_of.values()))}
    missing = sorted(name for name, path in file_of.items() if name not in found[path])
    if missing:
        raise CheckpointError(
            f"{INDEX} promises tensors that its files lack: {', '.join(missing)}",
            needed="an index and shards of one checkpoint",
            do="fetch the checkpoint again",
        )
    return file_of


def _read_index(path: Path) -> Mapping[str, str]:
    try:
        files = dict(json.loads(path.read_text(encoding="utf-8"))["weight_map"])
        strange = sorted({repr(file) for file in files.values() if not SHARD.fullmatch(file)})
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path.name} is no index ({type(error).__name__}: {error})",
            needed="JSON with a 'weight_map' from tensor to file",
            do="fetch the checkpoint again",
        ) from error
    if strange:
        raise CheckpointError(
            f"{path.name} names {', '.join(strange)}",
            needed="names of .safetensors files in the folder: nothing else is read",
            do="fetch the checkpoint again",
        )
    return files


def _names_in(path: Path) -> list[str]:
    if not path.is_file():
        others = sorted(other.name for other in path.parent.glob("*.bin"))
        raise CheckpointError(
            f"{path.name} is missing" + (f"; there are {', '.join(others)}" if others else ""),
            needed="weights as safetensors",
            do="fetch the checkpoint again, or convert it: model.save_pretrained(folder)",
        )
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            strange = sorted({file.get_slice(name).get_dtype() for name in names} - DTYPES)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path.name} cannot be read ({error})", needed="a whole safetensors file", do="fetch the checkpoint again"
        ) from error
    if strange:
        raise CheckpointError(
            f"{path.name} holds tensors of type {', '.join(strange)}",
            needed=f"{', '.join(sorted(DTYPES))}",
            do="give the original checkpoint; quantising is the build's work",
        )
    return names
