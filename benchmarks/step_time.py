"""What one step of an engine costs: median milliseconds by rows and context, for one or more bundles in turns.

    python benchmarks/step_time.py BUNDLE [BUNDLE ...] [--threads 2] [--rounds 20]

Turns, because on a shared machine only ratios of one run mean anything. PACELINE_ISA=avx512 (avx2, portable) measures
a lower instruction set.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from paceline.plugins.native.library import isa_name
from paceline.runtime.batch import Batch
from paceline.runtime.bundle import open_bundle
from paceline.runtime.engine_cpu import CpuEngine

PAGE = 16


@dataclass(frozen=True)
class Step:
    """`requests` of `rows` new tokens each behind `context` earlier ones; logits of the last `logits` rows of each."""

    requests: int
    rows: int
    context: int
    logits: int = 1

    def __str__(self) -> str:
        return f"{self.requests} x {self.rows} rows behind {self.context}"

    def batch(self, vocab_size: int) -> Batch:
        """The step's arrays, tokens drawn at random."""
        length = self.context + self.rows
        pages = -(-length // PAGE)
        total = self.requests * self.rows
        starts = np.arange(self.requests + 1, dtype=np.int32) * self.rows
        last = [start + self.rows - self.logits + i for start in starts[:-1] for i in range(self.logits)]
        return Batch(
            input_ids=np.random.default_rng(0).integers(0, vocab_size, total),
            positions=np.tile(np.arange(self.context, length), self.requests),
            query_start=starts,
            context_len=np.full(self.requests, length, np.int32),
            page_table=np.arange(self.requests * pages, dtype=np.int32).reshape(self.requests, pages),
            logit_rows=np.asarray(last, np.int64),
        )

    def num_pages(self) -> int:
        """Of all requests."""
        return self.requests * -(-(self.context + self.rows) // PAGE)


STEPS = (
    Step(1, 1, 300),
    Step(1, 5, 300, logits=5),
    Step(8, 1, 300),
    Step(8, 1, 1000),
    Step(8, 5, 300, logits=5),
    Step(32, 1, 300),
    Step(1, 512, 0),
)


def main() -> None:
    """Print one table: a row a step, a column a bundle."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", type=Path, nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    engines = {path.name: open_engine(path, options.threads) for path in options.bundles}
    print(f"{isa_name()}, {options.threads} threads, milliseconds\n\n| step | {' | '.join(engines)} |")
    print("|---" * (len(engines) + 1) + "|")
    for step in STEPS:
        cells = [f"{1e3 * seconds:.2f}" for seconds in measure(engines, step, options.rounds)]
        print(f"| {step} | {' | '.join(cells)} |", flush=True)


def open_engine(path: Path, threads: int) -> CpuEngine:
    """The target of a bundle, with as many pages as the largest step needs."""
    bundle = open_bundle(path)
    _, engine = bundle.engine("target", "cpu")
    pages = max(step.num_pages() for step in STEPS)
    return CpuEngine.open(engine, bundle.role("target").facts, pages, threads)


def measure(engines: dict[str, CpuEngine], step: Step, rounds: int) -> list[float]:
    """Median seconds of each engine, a few steps at a time."""
    laps: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(rounds):
        for name, engine in engines.items():
            batch = step.batch(engine.facts.vocab_size)
            for lap in range(4):
                begin = time.perf_counter()
                engine.run(batch)
                if lap:  # the first one finds the other engine's weights in the caches
                    laps[name].append(time.perf_counter() - begin)
    return [median(times) for times in laps.values()]


if __name__ == "__main__":
    main()
