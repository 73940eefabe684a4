"""Held-out text of three kinds for precision.py: what nothing was calibrated on, at least 8,000 tokens of it.

prose   docstrings of Python's own library (heldout.py)
code    source of other modules of it, read at run time, as it is not ours to publish
chat    the shipped held-out chats and the benchmark's prompts, as the model's template writes them
"""

import importlib
import inspect
import json
from pathlib import Path

from heldout import heldout_text

from paceline.runtime.tokenizer import BundleTokenizer
from paceline.toolchain.sample_text import Piece, SampleText, load_sample, windows_of

__all__ = ["WINDOW", "heldout_kinds"]

WINDOW, MAX_TOKENS = 256, 9216
CODE = ("bisect", "graphlib", "sched", "shlex", "string")
PROMPTS = Path(__file__).resolve().parent / "prompts"


def heldout_kinds(tokenizer: BundleTokenizer) -> dict[str, list[list[int]]]:
    """Windows of token ids by kind."""
    code = "\n\n".join(inspect.getsource(importlib.import_module(name)) for name in CODE)
    pieces = (Piece("prose", heldout_text()), Piece("code", code), *_chats())
    return windows_of(SampleText("heldout", "", pieces), tokenizer, WINDOW, MAX_TOKENS)


def _chats() -> list[Piece]:
    shipped = [piece for piece in load_sample("heldout").pieces if piece.kind == "chat"]
    lines = [line for path in sorted(PROMPTS.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    return [*shipped, *(Piece("chat", [{"role": "user", "content": json.loads(line)["prompt"]}]) for line in lines)]
