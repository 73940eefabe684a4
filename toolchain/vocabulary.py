"""Whether draft and target speak the same token ids: asked once at build, id by id, because nobody notices later.

Tokenizer files and the rows of both logits flow in; what they share flows out, or an error with the first id that means
two things. Comparing sizes was the alternative and lost: it refuses pairs that differ in padding only (151936 and
152064 rows over the same 151665 tokens) and lets pairs pass that agree in nothing but size.

    ids            0 .. last token     last token + 1 .. rows
    meaning        the same string     padding: logits of no token; the numbers of rows may differ here, and only here
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tokenizers import Tokenizer

from .errors import CheckpointError, VocabularyError
from .tokenizer_files import CHAT_TEMPLATE, GENERATION_CONFIG, TOKENIZER

__all__ = ["SharedVocabulary", "check_same_vocabulary"]


@dataclass(frozen=True)
class SharedVocabulary:
    """What draft and target have in common.

    `num_tokens`: ids from 0 that both know; a draft may propose no id from here on. `notes`: differences that cost
    acceptance but never a token, one sentence each.
    """

    num_tokens: int
    notes: tuple[str, ...]


def check_same_vocabulary(
    target_files: Mapping[str, bytes], draft_files: Mapping[str, bytes], target_rows: int, draft_rows: int
) -> SharedVocabulary:
    """What the two vocabularies share; `*_rows` is the size of the last axis of each model's logits.

    Raises: VocabularyError with the first id that differs and both strings, or where a model has fewer rows than
    tokens.
    """
    target, draft = _tokens_by_id(target_files, "target"), _tokens_by_id(draft_files, "draft")
    _check_rows("target", target, target_rows)
    _check_rows("draft", draft, draft_rows)
    for token_id in sorted(target.keys() | draft.keys()):
        if target.get(token_id) != draft.get(token_id):
            raise VocabularyError(
                f"id {token_id} is {_shown(target, token_id)} to the target and {_shown(draft, token_id)} to the draft",
                needed="one meaning for every id: the draft's tokens are checked by the target as they are",
                do="choose a draft of the same model family, or 'checkpoint: target' with some of its layers",
            )
    return SharedVocabulary(max(target) + 1, tuple(_notes(target_files, draft_files)))


def _tokens_by_id(files: Mapping[str, bytes], role: str) -> dict[int, str]:
    """Every id that stands for text or a special token; fillers such as GGUF's "[PAD151700]" are padding."""
    try:
        tokenizer = Tokenizer.from_buffer(files[TOKENIZER])
    except Exception as error:  # KeyError, or the bare Exception of the tokenizers package
        raise CheckpointError(
            f"the {role} has no usable {TOKENIZER} ({type(error).__name__}: {error})",
            needed="the tokenizer that its ids come from",
            do="add the tokenizer's files to the checkpoint",
        ) from error
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    return {token_id: text for text, token_id in vocabulary.items() if text != f"[PAD{token_id}]"}


def _check_rows(role: str, tokens: Mapping[int, str], rows: int) -> None:
    last = max(tokens, default=-1)
    if not 0 <= last < rows:
        raise VocabularyError(
            f"the {role}'s last token is id {last} and its logits have {rows} rows",
            needed="a row for every token",
            do="choose a checkpoint whose tokenizer belongs to its weights",
        )


def _shown(tokens: Mapping[int, str], token_id: int) -> str:
    return repr(tokens[token_id]) if token_id in tokens else "nothing"


def _notes(target_files: Mapping[str, bytes], draft_files: Mapping[str, bytes]) -> list[str]:
    """The draft's own end ids and chat template are never used: the target's rule. They tell how it was trained."""
    notes = []
    if _end_ids(target_files) != _end_ids(draft_files):
        notes.append(f"end ids: target {_end_ids(target_files)}, draft {_end_ids(draft_files)}; the target's rule")
    if target_files.get(CHAT_TEMPLATE) != draft_files.get(CHAT_TEMPLATE):
        notes.append("the draft has another chat template: it was trained on other text, expect less acceptance")
    return notes


def _end_ids(files: Mapping[str, bytes]) -> list[int]:
    ids: list[int] = json.loads(files.get(GENERATION_CONFIG, b"{}")).get("eos_token_id", [])
    return sorted(ids)
