"""Which measurements to take of a bundle: kinds of text x streams x drafting methods, and how their results compare.

An opened bundle and a plan flow in; rows flow out, each with its speed against plain decoding of the same prompts in
the same run and whether it wrote the very same tokens. Methods take turns within a repetition, so that a machine that
slows down slows all of them; the medians over repetitions are what is shown.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from ..runtime.open import OpenedBundle
from ..runtime.request import DraftMethod, RequestOptions
from ..runtime.sampling_params import SamplingParams
from .bench import Measurement, measure
from .prompts import PROMPTS

__all__ = ["BenchPlan", "BenchRow", "run_plan"]


@dataclass(frozen=True)
class BenchPlan:
    """What to measure; `methods` begins with plain decoding, which the others are compared with."""

    kinds: tuple[str, ...] = tuple(PROMPTS)
    streams: tuple[int, ...] = (1, 8)
    methods: tuple[DraftMethod, ...] = tuple(DraftMethod)
    max_tokens: int = 64
    temperature: float = 0.0
    num_draft_tokens: int = 4
    repetitions: int = 1


@dataclass(frozen=True)
class BenchRow:
    """Medians of one cell. `speedup` and `is_identical` are against plain decoding; see `Measurement` for the rest."""

    kind: str
    method: str
    streams: int
    tokens_per_s: float
    speedup: float
    ttft_ms: float
    tpot_p50_ms: float
    tpot_p95_ms: float
    acceptance: float | None
    tokens_per_turn: float
    is_identical: bool

    def as_dict(self) -> dict[str, object]:
        """The row as a JSON object."""
        return asdict(self)


def run_plan(opened: OpenedBundle, plan: BenchPlan, done: Callable[[str], None]) -> list[BenchRow]:
    """Measure every cell of `plan`; `done` is told the name of each kind and number of streams as it is finished."""
    rows = []
    for kind in plan.kinds:
        prompts = [_encoded(opened, text) for text in PROMPTS[kind]]
        for streams in plan.streams:
            # At least two rounds of prompts, so that there is a queue behind the batch.
            queue = prompts * -(-2 * streams // len(prompts)) if streams > 1 else prompts
            rows += _cell(opened, plan, kind, queue, streams)
            done(f"{kind}, {streams} streams")
    return rows


def _encoded(opened: OpenedBundle, text: str) -> list[int]:
    if opened.tokenizer.has_chat_template:
        return opened.tokenizer.encode_chat([{"role": "user", "content": text}])
    return opened.tokenizer.encode(text)


def _cell(
    opened: OpenedBundle, plan: BenchPlan, kind: str, prompts: Sequence[Sequence[int]], streams: int
) -> list[BenchRow]:
    params = SamplingParams(max_tokens=plan.max_tokens, temperature=plan.temperature, seed=0, ignore_eos=True)
    taken: dict[DraftMethod, list[Measurement]] = {method: [] for method in plan.methods}
    for _ in range(plan.repetitions):
        for method in plan.methods:
            options = RequestOptions(drafting=method, num_draft_tokens=plan.num_draft_tokens)
            taken[method].append(measure(opened.runtime, prompts, params, options, streams))
    plain = taken[plan.methods[0]]
    return [_row(kind, measurements, plain) for measurements in taken.values()]


def _row(kind: str, measurements: list[Measurement], plain: list[Measurement]) -> BenchRow:
    middle = sorted(measurements, key=lambda one: one.tokens_per_s)[len(measurements) // 2]
    ratios = [one.tokens_per_s / base.tokens_per_s for one, base in zip(measurements, plain, strict=True)]
    return BenchRow(
        kind=kind,
        method=middle.method,
        streams=middle.streams,
        tokens_per_s=middle.tokens_per_s,
        speedup=statistics.median(ratios),
        ttft_ms=middle.ttft_ms,
        tpot_p50_ms=middle.tpot_p50_ms,
        tpot_p95_ms=middle.tpot_p95_ms,
        acceptance=middle.acceptance,
        tokens_per_turn=middle.tokens_per_turn,
        is_identical=all(one.token_ids == base.token_ids for one, base in zip(measurements, plain, strict=True)),
    )
