"""Draft and target vocabularies: equal id by id, padding apart.

The old bugs: engines that compared sizes only refused Qwen pairs that differ in padding (151936 and 152064 rows) and
took pairs whose special tokens were swapped, which then drafted nonsense for ever.
"""

import pytest
from tiny_tokenizers import SPECIAL_TOKENS, byte_tokenizer, tokenizer_files

from paceline.toolchain.errors import CheckpointError, VocabularyError
from paceline.toolchain.vocabulary import check_same_vocabulary

FILES = tokenizer_files(byte_tokenizer())
NUM_TOKENS = 256 + len(SPECIAL_TOKENS)


@pytest.mark.parametrize("rows", [(NUM_TOKENS, NUM_TOKENS), (NUM_TOKENS, 320), (384, NUM_TOKENS)])
def test_rows_may_differ_where_no_token_is(rows: tuple[int, int]) -> None:
    shared = check_same_vocabulary(FILES, FILES, *rows)
    assert shared.num_tokens == NUM_TOKENS
    assert shared.notes == ()


def test_the_first_differing_id_is_named_with_both_strings() -> None:
    swapped = tokenizer_files(byte_tokenizer(special=("<|endoftext|>", "<|im_end|>", "<|im_start|>")))
    with pytest.raises(VocabularyError) as caught:
        check_same_vocabulary(FILES, swapped, 320, 320)
    assert caught.value.found == "id 1 is '<|im_start|>' to the target and '<|im_end|>' to the draft"


@pytest.mark.parametrize(
    ("target_added", "draft_added", "found"),
    [
        (["<tool>"], [], f"id {NUM_TOKENS} is '<tool>' to the target and nothing to the draft"),
        ([], ["<tool>"], f"id {NUM_TOKENS} is nothing to the target and '<tool>' to the draft"),
        (["<a>", "<b>"], ["<a>", "<c>"], f"id {NUM_TOKENS + 1} is '<b>' to the target and '<c>' to the draft"),
    ],
)
def test_a_token_is_no_padding(target_added: list[str], draft_added: list[str], found: str) -> None:
    """Equal numbers of rows prove nothing: what one knows as a token the other must know as the same."""
    target, draft = (tokenizer_files(byte_tokenizer(added=added)) for added in (target_added, draft_added))
    with pytest.raises(VocabularyError) as caught:
        check_same_vocabulary(target, draft, 320, 320)
    assert caught.value.found == found


def test_fillers_of_gguf_files_are_padding() -> None:
    """llama.cpp names the rows behind the last token "[PAD<id>]"; a Hugging Face folder does not name them at all."""
    filled = tokenizer_files(byte_tokenizer(added=[f"[PAD{NUM_TOKENS}]", f"[PAD{NUM_TOKENS + 1}]"]))
    assert check_same_vocabulary(filled, FILES, NUM_TOKENS + 2, 320).num_tokens == NUM_TOKENS


def test_a_filler_with_another_id_is_a_token() -> None:
    odd = tokenizer_files(byte_tokenizer(added=["[PAD7]"]))
    with pytest.raises(VocabularyError, match=r"'\[PAD7\]' to the target and nothing"):
        check_same_vocabulary(odd, FILES, 320, 320)


@pytest.mark.parametrize("rows", [(NUM_TOKENS - 1, 320), (320, NUM_TOKENS - 1)])
def test_every_token_needs_a_row(rows: tuple[int, int]) -> None:
    with pytest.raises(
        VocabularyError, match=f"last token is id {NUM_TOKENS - 1} and its logits have {NUM_TOKENS - 1}"
    ):
        check_same_vocabulary(FILES, FILES, *rows)


def test_what_costs_acceptance_only_is_noted() -> None:
    other = tokenizer_files(byte_tokenizer(), end_ids=(0, 2), template="{{ messages }}")
    notes = check_same_vocabulary(FILES, other, 320, 320).notes
    assert len(notes) == 2
    assert "end ids: target [2], draft [0, 2]" in notes[0]
    assert "chat template" in notes[1]


@pytest.mark.parametrize("files", [{}, {"tokenizer.json": b"{"}])
def test_a_missing_tokenizer_is_named_by_role(files: dict[str, bytes]) -> None:
    with pytest.raises(CheckpointError, match=r"the draft has no usable tokenizer\.json"):
        check_same_vocabulary(FILES, files, 320, 320)
