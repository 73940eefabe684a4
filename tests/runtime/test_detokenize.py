"""Streaming text: characters are never split, lost or doubled, whatever the tokens are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizers import byte_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from paceline.runtime.detokenize import Detokenizer, StreamWriter

SCRIPTS = (
    "plain English, 123",
    "Grüße, où est-ce",
    "한국어 문장입니다",
    "日本語のテキスト",
    "中文标点。",
    "العربية نص",
    "हिन्दी पाठ",
    "emoji 👩‍👩‍👧‍👦🏳️‍🌈👍🏽 end",
    "e\u0301 combining a\u0308",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈",
    "tab\tnewline\n\n  spaces",
)


class Plain:
    """A tokenizer as the runtime wraps it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True)


def trained() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(SCRIPTS, trainer)
    return tokenizer


TOKENIZERS = {"bytes": byte_tokenizer(), "merges": trained()}


def streamed(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(Plain(tokenizer))
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.flush()]


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
@pytest.mark.parametrize("text", SCRIPTS)
def test_every_piece_is_whole_and_all_pieces_are_the_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    pieces = streamed(tokenizer, ids)
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
@given(data=st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_random_tokens_give_the_whole_decoding(tokenizer: Tokenizer, data: st.DataObject) -> None:
    """Also tokens that are no text at all: half characters that never become whole."""
    ids = data.draw(st.lists(st.integers(0, tokenizer.get_vocab_size() - 1), max_size=40))
    assert "".join(streamed(tokenizer, ids)) == Plain(tokenizer).decode(ids)


def test_rubbish_does_not_pile_up() -> None:
    """The old bug: a model that writes half characters for ever made every further token slower."""
    tokenizer = TOKENIZERS["bytes"]
    half = tokenizer.encode("한", add_special_tokens=False).ids[1]
    detokenizer = Detokenizer(Plain(tokenizer))
    pieces = [detokenizer.push(half) for _ in range(300)]
    assert len("".join(pieces)) > 250
    assert len(detokenizer._ids) < 60


def test_specials_are_no_text_and_cost_nothing() -> None:
    tokenizer = TOKENIZERS["bytes"]
    detokenizer = Detokenizer(Plain(tokenizer))
    assert [detokenizer.push(0) for _ in range(100)] == [""] * 100
    assert len(detokenizer._ids) <= 1
    assert detokenizer.push(tokenizer.encode("x").ids[0]) == "x"


def test_a_writer_stops_across_tokens_and_keeps_the_rest_back() -> None:
    tokenizer = TOKENIZERS["bytes"]
    writer = StreamWriter(Plain(tokenizer), ("한!",))
    pieces = [writer.push(token_id) for token_id in tokenizer.encode("ab한국 한!cd").ids]
    assert "".join(pieces) + writer.flush() == "ab한국 "
    assert writer.stopped
