"""Sample text: the shipped ones, files and folders of users, and what is wrong with them said by name."""

import json
from pathlib import Path

import pytest
from tiny_bundles import tiny_checkpoint

from paceline.runtime.tokenizer import BundleTokenizer
from paceline.toolchain import sample_text
from paceline.toolchain.checkpoint import open_checkpoint
from paceline.toolchain.errors import RecipeError
from paceline.toolchain.sample_text import SHIPPED, CheckpointTexts, load_sample, windows_of


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> BundleTokenizer:
    checkpoint = open_checkpoint(str(tiny_checkpoint(tmp_path_factory.mktemp("model"))))
    return BundleTokenizer(CheckpointTexts(checkpoint.tokenizer_files()))


def test_the_shipped_samples_have_three_kinds_and_nothing_in_common() -> None:
    samples = {name: load_sample(name) for name in SHIPPED}
    for sample in samples.values():
        assert {piece.kind for piece in sample.pieces} == {"prose", "code", "chat"}
    texts = [{json.dumps(piece.content) for piece in sample.pieces} for sample in samples.values()]
    assert not texts[0] & texts[1], "what a model is calibrated on must not judge it"


def test_windows_are_whole_and_shared_out_between_kinds(tokenizer: BundleTokenizer) -> None:
    windows = windows_of(load_sample("calibration"), tokenizer, length=32, max_tokens=600)
    assert set(windows) == {"prose", "code", "chat"}
    for kind in windows.values():
        assert all(8 <= len(window) <= 32 for window in kind)
        assert 150 <= sum(map(len, kind)) <= 200


def test_users_bring_jsonl_files_and_folders(tmp_path: Path, tokenizer: BundleTokenizer) -> None:
    lines = [{"text": "a" * 40}, {"prompt": "b" * 40, "kind": "mine"}, {"messages": [{"role": "user", "content": "c"}]}]
    (tmp_path / "set.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert [piece.kind for piece in load_sample(str(tmp_path / "set.jsonl")).pieces] == ["text", "mine", "chat"]
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "b.txt").write_text("second " * 10)
    (folder / "a.py").write_text("first = 1\n" * 10)
    (folder / "ignored.bin").write_bytes(b"\xff")
    sample = load_sample(str(folder))
    assert [piece.content[:5] for piece in sample.pieces] == ["first", "secon"]
    assert windows_of(sample, tokenizer, 16, 1000)
    assert load_sample(str(folder)).sha256 == sample.sha256


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no text"),
        (b"\n\n", "holds no text"),
        (b'{"text": ""}', "holds no text"),
        (b'{"body": "x"}', r"set\.jsonl, line 1: .*; needed: an object with"),
        (b'{"text": "x"}\n{"text": 3}', r"set\.jsonl, line 2: text is no text"),
        (b"not json", r"set\.jsonl, line 1"),
        ('{"text": "ä"}'.encode("latin-1"), "is not UTF-8"),
        ('{"text": "x"}'.encode("utf-16"), "is not UTF-8"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match=message):
        load_sample(str(path))


def test_what_is_missing_too_large_or_too_short_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: BundleTokenizer
) -> None:
    with pytest.raises(RecipeError, match="is no file and no folder"):
        load_sample(str(tmp_path / "none"))
    path = tmp_path / "short.txt"
    path.write_text("ab")
    with pytest.raises(RecipeError, match="no piece of 8 tokens or more"):
        windows_of(load_sample(str(path)), tokenizer, 32, 100)
    monkeypatch.setattr(sample_text, "MAX_BYTES", 1)
    with pytest.raises(RecipeError, match="larger than"):
        load_sample(str(path))
