"""A GGUF file as a checkpoint: names and configuration as transformers has them, tensors dequantised on demand.

The file flows in, mapped into memory; tensors flow out one at a time. The `gguf` package dequantises and knows what
each architecture's tensors are called; transformers knows the configuration and what converters did to weights (llama's
q and k rows are permuted, Gemma's norms hold 1 + weight). No table of names of our own.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig
from transformers.modeling_gguf_pytorch_utils import (
    TENSOR_PROCESSORS,
    TensorProcessor,
    get_gguf_hf_weights_map,
    load_gguf_checkpoint,
)

from .digest import digest_of_files
from .errors import ArchitectureError, CheckpointError
from .tokenizer_files import tokenizer_files_of_gguf

__all__ = ["GgufCheckpoint"]


class GgufCheckpoint:
    """See toolchain/checkpoint.py: `Checkpoint`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        reader = _open_reader(path)
        self.config, metadata = _read_config(path)
        architecture = str(reader.fields["general.architecture"].contents())
        self._processor: TensorProcessor = TENSOR_PROCESSORS.get(architecture, TensorProcessor)(config=metadata)
        self._tensors = _tensors_by_name(reader, self.config, self._processor)

    def names(self) -> tuple[str, ...]:
        """Names of all stored tensors, sorted."""
        return tuple(sorted(self._tensors))

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor; GGUF lists axes from the innermost."""
        return tuple(int(size) for size in reversed(self._tensors[name].shape))

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """One tensor as float32."""
        tensor = self._tensors[name]
        try:
            weights = gguf.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise CheckpointError(
                f"{tensor.name} is stored as {tensor.tensor_type.name}",
                needed="F32, F16, BF16, Q8_0, Q4_0, Q4_1 or a K-quant",
                do="convert the file with another quantisation",
            ) from error
        processed = self._processor.process(weights=weights.reshape(self.shape(name)), name=tensor.name).weights
        return np.ascontiguousarray(processed, dtype=np.float32)

    @cached_property
    def _digest(self) -> str:
        return digest_of_files([self._path])

    def digest(self) -> str:
        """SHA-256 over the file."""
        return self._digest

    def tokenizer_files(self) -> Mapping[str, bytes]:
        """Tokenizer, generation configuration and chat template, made from the file's metadata."""
        return tokenizer_files_of_gguf(self._path, self.config)


def _open_reader(path: Path) -> gguf.GGUFReader:
    try:
        return gguf.GGUFReader(path)
    except Exception as error:  # the reader raises whatever its slices of a damaged file raise
        raise CheckpointError(
            f"{path.name} cannot be read ({type(error).__name__}: {error})",
            needed="a whole GGUF file",
            do="fetch the file again",
        ) from error


def _read_config(path: Path) -> tuple[PretrainedConfig, dict[str, object]]:
    try:
        metadata: dict[str, object] = load_gguf_checkpoint(str(path), return_tensors=False)["config"]
        config: PretrainedConfig = AutoConfig.for_model(**metadata)
    except Exception as error:
        raise ArchitectureError(
            f"{path.name} is not understood ({error})",
            needed="an architecture whose GGUF files the installed transformers reads",
            do="upgrade transformers, or give the original Hugging Face folder",
        ) from error
    return config, metadata


def _tensors_by_name(
    reader: gguf.GGUFReader, config: PretrainedConfig, processor: TensorProcessor
) -> dict[str, gguf.ReaderTensor]:
    """State-dict names of all tensors of the file; a model without memory is asked what its tensors are called."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    names = get_gguf_hf_weights_map(model, processor)
    return {names[tensor.name]: tensor for tensor in reader.tensors if tensor.name in names}
