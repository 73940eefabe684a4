"""The text side of a checkpoint as files that the runtime reads without transformers.

A folder or a GGUF file flows in; the bytes of tokenizer.json, generation_config.json (special ids, no more) and, where
there is one, chat_template.jinja flow out. Copying the checkpoint's own files was the alternative and lost: half of
the folders lack a tokenizer.json, some files cut or pad every text, and a GGUF file has none of the three.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .errors import CheckpointError
from .gguf_pre_tokenizer import set_pre_tokenizer

__all__ = ["CHAT_TEMPLATE", "GENERATION_CONFIG", "TOKENIZER", "tokenizer_files_of_folder", "tokenizer_files_of_gguf"]

TOKENIZER = "tokenizer.json"
CHAT_TEMPLATE = "chat_template.jinja"
GENERATION_CONFIG = "generation_config.json"

SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
GGUF_END_IDS = ("eos_token_id", "eot_token_id", "eom_token_id")  # end of text, of a turn, of a message


def tokenizer_files_of_folder(folder: Path, config: PretrainedConfig) -> Mapping[str, bytes]:
    """Files for the tokenizer in `folder`. Raises: CheckpointError when there is none, or it is damaged."""
    options = _read_json(folder / "tokenizer_config.json")
    tokenizer = _tokenizer_of_folder(folder)
    ids = {**_special_ids(config.to_dict()), **_special_ids(_read_json(folder / GENERATION_CONFIG))}
    ids["eos_token_id"] = _end_ids(ids.get("eos_token_id"), tokenizer.token_to_id(_text(options.get("eos_token"))))
    return _files(tokenizer, ids, _template_of_folder(folder, options))


def tokenizer_files_of_gguf(path: Path, metadata: Mapping[str, object]) -> Mapping[str, bytes]:
    """Files for the vocabulary inside a GGUF file; `metadata` are its scalar keys.

    Raises: CheckpointError where there is no vocabulary, or one whose way of splitting text is not known.
    """
    try:
        loaded = PreTrainedTokenizerFast.from_pretrained(path.parent, gguf_file=path.name)
    except Exception as error:  # whatever a converter raises on a vocabulary that it was not made for
        raise _no_tokenizer(path, error) from error
    tokenizer = _backend(loaded)
    set_pre_tokenizer(tokenizer, str(metadata.get("tokenizer.ggml.model")), metadata.get("tokenizer.ggml.pre"))
    ids: dict[str, object] = {name: metadata.get(f"tokenizer.ggml.{name}") for name in SPECIAL_IDS}
    ids["pad_token_id"] = metadata.get("tokenizer.ggml.padding_token_id")
    ids["eos_token_id"] = _end_ids([metadata.get(f"tokenizer.ggml.{name}") for name in GGUF_END_IDS], None)
    template = metadata.get("tokenizer.chat_template")
    return _files(tokenizer, ids, template if isinstance(template, str) else None)


def _tokenizer_of_folder(folder: Path) -> Tokenizer:
    """tokenizer.json as it stands; where there is none, what transformers makes of the other files."""
    path = folder / TOKENIZER
    try:
        if path.is_file():
            return Tokenizer.from_file(str(path))
        return _backend(AutoTokenizer.from_pretrained(folder, trust_remote_code=False))
    except Exception as error:  # the tokenizers package raises bare Exception, converters anything
        raise _no_tokenizer(folder, error) from error


def _no_tokenizer(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"no usable tokenizer in {path.name} ({type(error).__name__}: {error})",
        needed="tokenizer.json, or a vocabulary that transformers can convert into one",
        do="add the tokenizer's files to the checkpoint",
    )


def _backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise CheckpointError(
            f"{type(tokenizer).__name__} has no fast form",
            needed="a tokenizer of the 'tokenizers' library",
            do="convert it, or choose another checkpoint",
        )
    return backend


def _template_of_folder(folder: Path, options: Mapping[str, object]) -> str | None:
    """The chat template's own file, or its place in tokenizer_config.json; of several the one called "default"."""
    if (folder / CHAT_TEMPLATE).is_file():
        return (folder / CHAT_TEMPLATE).read_text(encoding="utf-8")
    template = options.get("chat_template")
    if isinstance(template, list):
        template = next((entry["template"] for entry in template if entry.get("name") == "default"), None)
    return template if isinstance(template, str) else None


def _files(tokenizer: Tokenizer, ids: Mapping[str, object], template: str | None) -> dict[str, bytes]:
    tokenizer.no_truncation()  # a length limit is the runtime's to check, and to say so
    tokenizer.no_padding()
    known = {name: value for name, value in ids.items() if value not in (None, [])}
    files = {
        TOKENIZER: tokenizer.to_str().encode(),
        GENERATION_CONFIG: (json.dumps(known, indent=2, sort_keys=True) + "\n").encode(),
    }
    return files if template is None else {**files, CHAT_TEMPLATE: template.encode()}


def _end_ids(ids: object, first: int | None) -> list[int]:
    """Every id that ends a text, once; `first` leads, since it is the one that templates print as eos_token."""
    listed = [first, *(ids if isinstance(ids, list) else [ids])]
    return list(dict.fromkeys(token_id for token_id in listed if isinstance(token_id, int)))


def _special_ids(source: Mapping[str, object]) -> dict[str, object]:
    return {name: source[name] for name in SPECIAL_IDS if source.get(name) is not None}


def _text(token: object) -> str:
    """A special token of tokenizer_config.json: a string, or an object with its content."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")


def _read_json(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(
            f"{path.name} is no JSON ({error})", needed="a whole file", do="fetch the checkpoint again"
        ) from error
    return content if isinstance(content, dict) else {}
