"""Text that a model is calibrated or measured on: from a file, a folder or the shipped samples to windows of token ids.

    calibration, heldout      the shipped samples: prose, code and chats of ours, in toolchain/samples
    FILE.jsonl                a line a piece: {"text": ...}, {"prompt": ...} or {"messages": [...]}; "kind" is optional
    FOLDER                    every .txt, .md and .py file in it, in order of their names
    FILE.txt                  one piece

Pieces flow out by kind, then windows of ids, none across two pieces; the digest covers the bytes that were read.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runtime.tokenizer import BundleTokenizer
from .errors import RecipeError

__all__ = ["SHIPPED", "CheckpointTexts", "Piece", "SampleText", "load_sample", "windows_of"]

SHIPPED = ("calibration", "heldout")
SAMPLES = Path(__file__).parent / "samples"
SUFFIXES = (".txt", ".md", ".py")
MAX_BYTES = 64 << 20
MIN_WINDOW = 8  # tokens; a shorter rest of a piece says little about its model


@dataclass(frozen=True)
class Piece:
    """One text or one chat."""

    kind: str
    content: str | Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class SampleText:
    """All pieces of one source, and the SHA-256 of what they were read from."""

    name: str
    sha256: str
    pieces: tuple[Piece, ...]


class CheckpointTexts:
    """A checkpoint's tokenizer files, as a bundle would hold them."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def read_text(self, name: str) -> str | None:
        """A text file, None where there is none of that name."""
        return self._files[name].decode() if name in self._files else None

    def generation_config(self) -> Mapping[str, object]:
        """Special ids."""
        return dict(json.loads(self.read_text("generation_config.json") or "{}"))


def load_sample(name: str) -> SampleText:
    """The text called `name`; see the table above. Raises: RecipeError when there is none, or nothing in it."""
    path = SAMPLES / f"{name}.jsonl" if name in SHIPPED else Path(name).expanduser()
    files = _files(path)
    if sum(file.stat().st_size for file in files) > MAX_BYTES:
        raise RecipeError(f"{path} is larger than {MAX_BYTES >> 20} MiB", needed="a sample", do="take a part of it")
    digest, pieces = hashlib.sha256(), []
    for file in files:
        content = file.read_bytes()
        digest.update(content)
        pieces += list(_pieces(file, content))
    if not any(piece.content for piece in pieces):
        raise RecipeError(
            f"{path} holds no text", needed="at least one piece", do="see docs/precision.md for the forms"
        )
    return SampleText(name, digest.hexdigest(), tuple(piece for piece in pieces if piece.content))


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    raise RecipeError(
        f"{path} is no file and no folder",
        needed=f"{' or '.join(SHIPPED)}, a .jsonl file, or a folder of text",
        do="correct the path of the data set",
    )


def _pieces(path: Path, content: bytes) -> Iterator[Piece]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is not UTF-8 ({error})", needed="text in UTF-8", do="convert the file") from None
    if path.suffix != ".jsonl":
        yield Piece(path.stem if path.suffix == ".txt" else path.suffix[1:], text.strip())
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield _piece(f"{path.name}, line {number}", line)


def _piece(where: str, line: str) -> Piece:
    try:
        row: Any = json.loads(line)
        key = next(key for key in ("text", "prompt", "messages") if key in row)
        content = row[key]
        if key == "messages":
            content = [{"role": str(turn["role"]), "content": str(turn["content"])} for turn in content]
        elif not isinstance(content, str):
            raise TypeError(f"{key} is no text")
        return Piece(str(row.get("kind", "text" if key == "text" else "chat")), content)
    except (ValueError, TypeError, KeyError, StopIteration, AttributeError) as error:
        raise RecipeError(
            f"{where}: {error or 'no known key'}",
            needed='an object with "text", "prompt" or "messages"',
            do="mend the line",
        ) from None


def windows_of(
    sample: SampleText, tokenizer: BundleTokenizer, length: int, max_tokens: int
) -> dict[str, list[list[int]]]:
    """Token ids by kind, in windows of at most `length`; each kind gets an equal share of `max_tokens`.

    Raises: RecipeError when not one window comes out.
    """
    kinds = sorted({piece.kind for piece in sample.pieces})
    windows = {kind: _of_kind(sample, kind, tokenizer, length, max_tokens // len(kinds)) for kind in kinds}
    if not any(windows.values()):
        raise RecipeError(
            f"{sample.name} has no piece of {MIN_WINDOW} tokens or more", needed="longer text", do="add some"
        )
    return {kind: found for kind, found in windows.items() if found}


def _of_kind(
    sample: SampleText, kind: str, tokenizer: BundleTokenizer, length: int, max_tokens: int
) -> list[list[int]]:
    windows: list[list[int]] = []
    left = max_tokens
    for piece in sample.pieces:
        if piece.kind != kind:
            continue
        ids = _encode(piece, tokenizer)
        for start in range(0, len(ids), length):
            window = ids[start : min(start + length, start + left)]
            if len(window) >= MIN_WINDOW:
                windows.append(window)
                left -= len(window)
    return windows


def _encode(piece: Piece, tokenizer: BundleTokenizer) -> list[int]:
    if isinstance(piece.content, str):
        return tokenizer.encode(piece.content)
    if tokenizer.has_chat_template:
        return tokenizer.encode_chat(piece.content)
    return tokenizer.encode("\n\n".join(turn["content"] for turn in piece.content))
