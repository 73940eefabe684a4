"""What is measured: prompts as token ids, by workload and repetition. Every row gets the same ids.

In: benchmarks/prompts/*.jsonl and the bundle's tokenizer. Out: `Job`s. Every request writes exactly `MAX_TOKENS`
tokens whatever it says, with a queue behind the batch: letting fast requests run longer shows gains where fixed work
shows a loss.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from heldout import heldout_text

from paceline.runtime.tokenizer import BundleTokenizer

__all__ = ["KINDS", "MIXED_STREAMS", "WORKLOADS", "Job", "heldout_windows", "jobs"]

PROMPTS = Path(__file__).resolve().parent / "prompts"
KINDS = ("chat", "code", "copying")
WORKLOADS = (*KINDS, "mixed", "prefill")
MAX_TOKENS = 128
SINGLE_PROMPTS = 4  # a repetition takes the next four of twelve
MIXED_STREAMS, MIXED_REQUESTS = 8, 24
PREFILL_TOKENS, PREFILL_PROMPTS = 512, 6
WINDOW_TOKENS, NUM_WINDOWS = 512, 16

Ids = list[list[int]]


@dataclass(frozen=True)
class Job:
    """One request to a worker; where `first_tokens` is set, the same prompts are run for one token as well.

    The difference of the two times is decoding alone.
    """

    workload: str
    prompts: Ids
    max_tokens: int
    streams: int
    first_tokens: bool


def jobs(tokenizer: BundleTokenizer, repetition: int) -> list[Job]:
    """All jobs of one repetition; repetitions walk through the prompts."""
    prompts = {kind: _chats(tokenizer, kind) for kind in KINDS}
    singles = [
        Job(kind, _next(prompts[kind], repetition * SINGLE_PROMPTS, SINGLE_PROMPTS), MAX_TOKENS, 1, first_tokens=True)
        for kind in KINDS
    ]
    per_kind = MIXED_REQUESTS // len(KINDS)
    some = [_next(prompts[kind], repetition * SINGLE_PROMPTS, per_kind) for kind in KINDS]
    mixed = [prompt for trio in zip(*some, strict=True) for prompt in trio]
    long = heldout_windows(tokenizer, PREFILL_TOKENS, PREFILL_PROMPTS)
    return [
        *singles,
        Job("mixed", mixed, MAX_TOKENS, MIXED_STREAMS, first_tokens=False),
        Job("prefill", long, 1, 1, first_tokens=False),
    ]


def heldout_windows(tokenizer: BundleTokenizer, length: int = WINDOW_TOKENS, count: int = NUM_WINDOWS) -> Ids:
    """`count` pieces of held-out text, one after the other, `length` tokens each."""
    ids = tokenizer.encode(heldout_text())
    assert len(ids) >= length * count, f"the held-out text has {len(ids)} tokens, {length * count} are needed"
    return [ids[i * length : (i + 1) * length] for i in range(count)]


def _chats(tokenizer: BundleTokenizer, kind: str) -> Ids:
    lines = (PROMPTS / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()
    return [tokenizer.encode_chat([{"role": "user", "content": json.loads(line)["prompt"]}]) for line in lines]


def _next(prompts: Ids, start: int, count: int) -> Ids:
    return [prompts[(start + i) % len(prompts)] for i in range(count)]
