"""Tiny tokenizers for tests: byte-level, no merges, a few special tokens.

In: special and further added tokens. Out: a `tokenizers.Tokenizer` over the 256 bytes, or the files of a checkpoint
that has it.
"""

import json
from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

__all__ = ["SPECIAL_TOKENS", "byte_tokenizer", "tokenizer_files"]

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def byte_tokenizer(special: Sequence[str] = SPECIAL_TOKENS, added: Sequence[str] = ()) -> Tokenizer:
    """`special` have the first ids, then the bytes, then `added` (not special)."""
    texts = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={text: token_id for token_id, text in enumerate(texts)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in added])
    return tokenizer


def tokenizer_files(
    tokenizer: Tokenizer, end_ids: Sequence[int] = (2,), template: str | None = None
) -> dict[str, bytes]:
    """What `Checkpoint.tokenizer_files` would say of a checkpoint with this tokenizer."""
    files = {
        "tokenizer.json": tokenizer.to_str().encode(),
        "generation_config.json": json.dumps({"eos_token_id": list(end_ids)}).encode(),
    }
    if template is not None:
        files["chat_template.jinja"] = template.encode()
    return files
