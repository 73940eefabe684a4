"""The files of a bundle beyond those that opening reads: strangers, and names that lead elsewhere."""

from pathlib import Path

import pytest

from paceline.runtime.bundle import read_manifest
from paceline.runtime.bundle_files import DigestCheck, extra_files, file_problems, is_plain_name


def test_a_whole_bundle_has_neither_problems_nor_strangers(tiny_whole: Path) -> None:
    files = read_manifest(tiny_whole).files
    assert list(file_problems(tiny_whole, files, DigestCheck.FULL)) == []
    assert extra_files(tiny_whole, files) == []


def test_strangers_are_found_wherever_they_lie(tiny_copy: Path) -> None:
    files = read_manifest(tiny_copy).files
    (tiny_copy / "signature").write_text("not a stranger")
    (tiny_copy / "note.txt").write_text("x")
    (tiny_copy / "engines" / "cpu" / ".hidden").write_text("x")
    (tiny_copy / "empty").mkdir()
    (tiny_copy / "linked").symlink_to(tiny_copy / "graph")
    (tiny_copy / "dangling").symlink_to(tiny_copy / "nowhere")
    assert extra_files(tiny_copy, files) == ["dangling", "engines/cpu/.hidden", "linked", "note.txt"]


def test_all_problems_are_told_in_order(tiny_copy: Path) -> None:
    (tiny_copy / "tokenizer.json").unlink()
    (tiny_copy / "graph" / "draft.onnx").write_text("x")
    problems = list(file_problems(tiny_copy, read_manifest(tiny_copy).files, DigestCheck.SIZES))
    assert [one.name for one in problems] == ["graph/draft.onnx", "tokenizer.json"]
    assert problems[0].found == "has 1 bytes"


@pytest.mark.parametrize("name", ["a", "a/b.onnx", ".hidden", "a..b", "ä"])
def test_plain_names(name: str) -> None:
    assert is_plain_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "/a", "../a", "a/../b", "./a", "a//b", "a/", "a/.", "a\0"])
def test_names_that_are_not_plain(name: str) -> None:
    assert not is_plain_name(name)
