"""A GGUF file as a checkpoint: names and configuration as transformers has them, tensors dequantised on demand.

The file flows in, mapped into memory; tensors flow out one at a time. The `gguf` package dequantises and knows what
each architecture's tensors are called; transformers knows what converters did to weights (llama's q and k rows are
permuted, Gemma's norms hold 1 + weight). No table of names of our own: it would be one per model.
"""

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM, PretrainedConfig
from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor

from .checkpoint import check_num_layers
from .digest import digest_of_files
from .errors import ArchitectureError, CheckpointError
from .gguf_config import config_from_gguf
from .tokenizer_files import tokenizer_files_of_gguf

__all__ = ["GgufCheckpoint"]

HEAD, EMBEDDING, ROPE_FACTORS = "output.weight", "token_embd.weight", "rope_freqs.weight"
ITEM_TYPE_BYTES = 4  # what stands before an array's length
MOST_ENTRIES = 1 << 22  # in a metadata array; vocabularies have a quarter of a million
LONGEST_LIST = 1024  # entries of a metadata array that is read; the longer ones are the vocabulary's


class GgufCheckpoint:
    """See toolchain/checkpoint.py: `Checkpoint`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        reader = _open_reader(path)
        self._map: mmap.mmap = reader.data._mmap
        self._kept: tuple[str, npt.NDArray[np.float32]] | None = None  # the tensor that was read last
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        self._metadata = _metadata(path, reader)
        self.config: PretrainedConfig = config_from_gguf(
            self._metadata,
            vocab_size=_num_rows(path, tensors),
            tied=HEAD not in tensors,
            rope_factors=_rope_factors(tensors),
        )
        check_num_layers(self.config, len(tensors), path.name)
        tensors.pop(ROPE_FACTORS, None)  # now in the configuration
        architecture = str(self._metadata["general.architecture"])
        self._tensors = _by_state_dict_name(path, tensors, architecture, self.config)
        # undoes what llama.cpp's converter did to weights
        self._processor: TensorProcessor = TENSOR_PROCESSORS.get(architecture, TensorProcessor)(self.config.to_dict())

    def names(self) -> tuple[str, ...]:
        """Names of all stored tensors, sorted."""
        return tuple(sorted(self._tensors))

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor; GGUF lists axes from the innermost."""
        return tuple(int(size) for size in reversed(self._tensors[name].shape))

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """One tensor as float32."""
        tensor = self._tensors[name]
        weights = _dequantized(tensor.data, tensor).reshape(self.shape(name))
        restored = self._processor.process(weights=weights, name=tensor.name).weights
        array = np.ascontiguousarray(restored, dtype=np.float32)
        self._drop_mapped()
        return array

    def _drop_mapped(self) -> None:
        """Tell the system that what was read of the file need not stay in this process's memory."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def read_rows(self, name: str, start: int, stop: int) -> npt.NDArray[np.float32]:
        """Some rows of one tensor as float32.

        Converters move rows inside a layer (llama's q and k), so that a layer's tensors are read whole and the last
        one is kept; the large ones outside of layers, embedding and head, are as they were.
        """
        tensor = self._tensors[name]
        if tensor.name in (HEAD, EMBEDDING) and tensor.data.ndim > 1:
            rows = _dequantized(tensor.data[start:stop], tensor)
            self._drop_mapped()
            return rows
        if self._kept is None or self._kept[0] != name:
            self._kept = None  # before the next is read, not after
            self._kept = (name, self.read(name))
        return self._kept[1][start:stop]

    def digest(self) -> str:
        """SHA-256 over the file."""
        return digest_of_files([self._path])

    def tokenizer_files(self) -> Mapping[str, bytes]:
        """Tokenizer, generation configuration and chat template, made from the file's metadata."""
        return tokenizer_files_of_gguf(self._path, self._metadata)


def _rope_factors(tensors: Mapping[str, gguf.ReaderTensor]) -> npt.NDArray[np.float32] | None:
    tensor = tensors.get(ROPE_FACTORS)
    return None if tensor is None else _dequantized(tensor.data, tensor)


class BoundedReader(gguf.GGUFReader):  # type: ignore[misc]
    """Refuses an array longer than its file before it walks through it: one damaged byte asked for 10^18 entries."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        if raw_type == gguf.GGUFValueType.ARRAY:
            (length,) = self._get(orig_offs + ITEM_TYPE_BYTES, np.uint64)
            if length > min(MOST_ENTRIES, len(self.data) - orig_offs):
                raise ValueError(f"an array of {length} entries at byte {orig_offs} of {len(self.data)}")
        return super()._get_field_parts(orig_offs, raw_type)


def _open_reader(path: Path) -> gguf.GGUFReader:
    try:
        return BoundedReader(path)
    except Exception as error:  # the reader raises whatever its slices of a damaged file raise
        raise _damaged(path, f"cannot be read ({type(error).__name__}: {error})") from error


def _damaged(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{path.name} {what}", needed="a whole GGUF file of a language model", do="fetch it again")


def _metadata(path: Path, reader: gguf.GGUFReader) -> dict[str, object]:
    """Every key but the long lists, which are the vocabulary's and take seconds."""
    try:
        metadata = {key: field.contents() for key, field in reader.fields.items() if len(field.data) <= LONGEST_LIST}
    except Exception as error:  # as above: text is decoded now
        raise _damaged(path, f"has unreadable metadata ({type(error).__name__}: {error})") from error
    if not metadata.get("general.architecture"):
        raise _damaged(path, "does not say its general.architecture")
    return metadata


def _num_rows(path: Path, tensors: Mapping[str, gguf.ReaderTensor]) -> int:
    """Rows of the embedding: the vocabulary with its padding, which no key counts reliably."""
    if EMBEDDING not in tensors:
        raise _damaged(path, f"lacks the tensor {EMBEDDING}")
    return int(tensors[EMBEDDING].shape[-1])


def _dequantized(data: npt.NDArray[np.generic], tensor: gguf.ReaderTensor) -> npt.NDArray[np.float32]:
    """`data`, all or some rows of `tensor`."""
    try:
        weights: npt.NDArray[np.float32] = gguf.dequantize(data, tensor.tensor_type)
    except NotImplementedError as error:
        raise CheckpointError(
            f"{tensor.name} is stored as {tensor.tensor_type.name}",
            needed="F32, F16, BF16, Q8_0, Q4_0, Q4_1 or a K-quant",
            do="convert the file with another quantisation",
        ) from error
    return weights


def _by_state_dict_name(
    path: Path, tensors: Mapping[str, gguf.ReaderTensor], architecture: str, config: PretrainedConfig
) -> dict[str, gguf.ReaderTensor]:
    """The file's tensors under their state-dict names. Raises: CheckpointError for a tensor that has none."""
    names = _state_dict_names(path, architecture, config)
    unknown = sorted(tensors.keys() - names.keys())
    if unknown:
        raise CheckpointError(
            f"{path.name} holds tensors {', '.join(unknown)}",
            needed=f"only tensors that a {config.model_type} model has: one that is passed over changes every answer",
            do="give the original Hugging Face folder",
        )
    return {names[name]: tensor for name, tensor in tensors.items()}


def _state_dict_names(path: Path, architecture: str, config: PretrainedConfig) -> dict[str, str]:
    """For each GGUF name the state-dict name: a model without memory says the latter, the gguf package the former."""
    known = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        mapping = gguf.get_tensor_name_map(known[architecture], config.num_hidden_layers)
    except Exception as error:  # each model class stumbles over bad sizes in its own way
        raise ArchitectureError(
            f"{path.name} holds no language model with known names ({architecture}: {type(error).__name__}: {error})",
            needed="an architecture that transformers and the gguf package both know",
            do="upgrade both, or give the original Hugging Face folder",
        ) from error
    names = {}
    for name in model.state_dict():
        stem, _, kind = name.rpartition(".")
        stored = mapping.get_name(stem)
        if stored is not None:
            names[f"{stored}.{kind}"] = name
    return names
