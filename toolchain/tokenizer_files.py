"""The text side of a checkpoint as files that the runtime reads without transformers.

A folder or a GGUF file flows in; the bytes of tokenizer.json, generation_config.json and, where there is one,
chat_template.jinja flow out. Shipping the checkpoint's own files was the alternative and lost: half of them lack a
tokenizer.json, and a GGUF file has none of the three.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from transformers import AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase

from .errors import CheckpointError

__all__ = ["CHAT_TEMPLATE", "GENERATION_CONFIG", "TOKENIZER", "tokenizer_files_of_folder", "tokenizer_files_of_gguf"]

TOKENIZER = "tokenizer.json"
CHAT_TEMPLATE = "chat_template.jinja"
GENERATION_CONFIG = "generation_config.json"


def tokenizer_files_of_folder(folder: Path, config: PretrainedConfig) -> Mapping[str, bytes]:
    """Files for the tokenizer in `folder`. Raises: CheckpointError when there is none."""
    files = _files_of(_load(folder), config)
    if (folder / GENERATION_CONFIG).is_file():
        own = json.loads((folder / GENERATION_CONFIG).read_text())
        files[GENERATION_CONFIG] = _json_bytes({**json.loads(files[GENERATION_CONFIG]), **_special_ids(own)})
    return files


def tokenizer_files_of_gguf(path: Path, config: PretrainedConfig) -> Mapping[str, bytes]:
    """Files for the vocabulary inside a GGUF file."""
    return _files_of(_load(path.parent, gguf_file=path.name), config)


def _load(folder: Path, **options: str) -> PreTrainedTokenizerBase:
    try:
        return AutoTokenizer.from_pretrained(folder, **options)  # type: ignore[no-any-return]
    except Exception as error:
        raise CheckpointError(
            f"no usable tokenizer in {folder.name} ({error})",
            needed="tokenizer.json, or files that transformers can convert into one",
            do="add the tokenizer's files to the checkpoint",
        ) from error


def _files_of(tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig) -> dict[str, bytes]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise CheckpointError(
            f"{type(tokenizer).__name__} has no fast form",
            needed="a tokenizer of the 'tokenizers' library",
            do="convert it, or choose another checkpoint",
        )
    files = {TOKENIZER: backend.to_str(pretty=False).encode(), GENERATION_CONFIG: _generation_config(tokenizer, config)}
    if isinstance(tokenizer.chat_template, str):
        files[CHAT_TEMPLATE] = tokenizer.chat_template.encode()
    return files


def _generation_config(tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig) -> bytes:
    ids = _special_ids(config.to_dict())
    if "eos_token_id" not in ids and tokenizer.eos_token_id is not None:
        ids["eos_token_id"] = [tokenizer.eos_token_id]
    return _json_bytes(ids)


def _special_ids(source: Mapping[str, object]) -> dict[str, object]:
    """The ids that end or begin a text; end ids always as a list."""
    found: dict[str, object] = {}
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = source.get(key)
        if value is not None:
            found[key] = [value] if key == "eos_token_id" and isinstance(value, int) else value
    return found


def _json_bytes(value: Mapping[str, object]) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()
