"""What a step costs outside the engine: median microseconds per stage.

    python benchmarks/host_overhead.py [--bundle bundles/smollm2-135m] [--requests 8] [--json FILE]

First with an engine that hands back ready-made logits: admit, schedule, draft (n-gram look-up), building arrays,
chains, sampling and emitting, everything in the processor's caches. Then, with --bundle, in steps of the real engine,
which leaves the caches full of weights, and with text. The target is at most 500 us a step at 8 requests.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from paceline.plugins.contract import GraphFacts, LayerCache
from paceline.runtime.batch import Batch
from paceline.runtime.bundle import open_bundle
from paceline.runtime.engine_cpu import CpuEngine
from paceline.runtime.loop import Loop
from paceline.runtime.policies import Limits
from paceline.runtime.request import DraftMethod, RequestOptions, TextWriter
from paceline.runtime.sample import Sampler
from paceline.runtime.sampling_params import SamplingParams
from paceline.runtime.step_stats import STAGES
from paceline.runtime.tokenizer import BundleTokenizer
from paceline.toolchain.prompts import PROMPTS

MAX_POSITIONS, VOCAB, PROMPT_TOKENS = 8192, 49152, 500
TARGET_US = 500.0


@dataclass
class InstantEngine:
    """An engine that answers at once: its favourite follows the last token in a circle of 50, so that n-grams match."""

    vocab: int
    num_pages: int
    facts: GraphFacts = field(init=False)

    def __post_init__(self) -> None:
        self.facts = GraphFacts(self.vocab, 1, MAX_POSITIONS, 16, "float32", (LayerCache(1, 1),))
        self._logits = np.random.default_rng(0).standard_normal((128, self.vocab), np.float32)
        self._favourites = (np.arange(0), np.arange(0))

    def run(self, batch: Batch) -> np.ndarray:
        """Ready-made rows with one clear favourite each."""
        rows = batch.logit_rows
        self._logits[self._favourites] = 0.0
        self._favourites = (np.arange(len(rows)), (batch.input_ids[rows] + 1) % 50)
        self._logits[self._favourites] = 20.0
        return self._logits[: len(rows)]


@dataclass(frozen=True)
class Setting:
    """A loop to measure, and the requests that ride in it."""

    name: str
    open_loop: Callable[[], Loop]
    prompts: list[list[int]]
    writer: Callable[[], TextWriter | None]


def instant_setting(num_requests: int) -> Setting:
    """Caches full of host data, no text."""
    num_pages = num_requests * MAX_POSITIONS // 16
    prompts = [[(i + j) % 50 for j in range(PROMPT_TOKENS)] for i in range(num_requests)]
    limits = Limits(max_num_seqs=num_requests)
    engine = InstantEngine(VOCAB, num_pages)
    return Setting("instant engine", lambda: Loop(engine, Sampler(), limits=limits), prompts, lambda: None)


def real_setting(folder: Path, num_requests: int) -> Setting:
    """The bundle's engine and tokenizer."""
    bundle = open_bundle(folder)
    tokenizer = BundleTokenizer(bundle)
    facts, path = bundle.role("target").facts, bundle.engine("target", "cpu")[1]
    engine = CpuEngine.open(path, facts, num_requests * 40, threads=len(os.sched_getaffinity(0)))
    texts = [text for kind in PROMPTS.values() for text in kind]
    prompts = [tokenizer.encode(texts[i % len(texts)]) for i in range(num_requests)]
    limits = Limits(max_num_seqs=num_requests)
    writer = partial(tokenizer.writer, SamplingParams())
    return Setting(folder.name, lambda: Loop(engine, Sampler(), limits=limits), prompts, writer)


def measure(setting: Setting, drafting: DraftMethod, num_steps: int) -> dict[str, float]:
    """Median microseconds of each stage, the engine's own time taken out of `run`, and of all together."""
    loop = setting.open_loop()
    params = SamplingParams(max_tokens=400, ignore_eos=True)
    for prompt in setting.prompts:
        loop.submit(prompt, params, RequestOptions(drafting=drafting), setting.writer())
    laps: list[list[float]] = []
    while loop.has_work and len(laps) < num_steps:
        loop.step()
        stats = loop.last_step
        if stats is not None and stats.num_requests == len(setting.prompts):
            stages = list(stats.stage_s)
            stages[STAGES.index("run")] -= stats.engine_s
            laps.append([*stages, sum(stages)])
    medians = [1e6 * median(stage) for stage in zip(*laps[1:], strict=True)]
    return dict(zip((*STAGES, "total"), medians, strict=True))


def main() -> None:
    """Print one table: a row per engine and drafting method, a column per stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    settings = [instant_setting(args.requests)]
    settings += [real_setting(args.bundle, args.requests)] if args.bundle else []
    rows = [
        {"engine": setting.name, "drafting": drafting.value, **measure(setting, drafting, args.steps)}
        for setting in settings
        for drafting in (DraftMethod.NONE, DraftMethod.NGRAM)
    ]
    print_rows(rows)
    if args.json:
        args.json.write_text(json.dumps({"requests": args.requests, "target_us": TARGET_US, "rows": rows}, indent=1))


def print_rows(rows: list[dict[str, Any]]) -> None:
    """A plain table."""
    lines = [f"{'us/step':32}" + "".join(f"{name:>10}" for name in (*STAGES, "total"))]
    for row in rows:
        cells = "".join(f"{row[name]:10.1f}" for name in (*STAGES, "total"))
        lines.append(f"{row['engine'] + ', ' + row['drafting']:32}" + cells)
    sys.stdout.write("\n".join([*lines, f"target: {TARGET_US:.0f} us"]) + "\n")


if __name__ == "__main__":
    main()
