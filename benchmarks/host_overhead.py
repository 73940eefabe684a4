"""What a step costs outside the engine: median microseconds per stage, with an engine that returns at once.

    python benchmarks/host_overhead.py [--requests 8] [--steps 2000] [--vocab 49152]

The engine hands back ready-made logits, so all that is left is host work: admit, schedule, draft (n-gram look-up),
building arrays, chains, sampling and emitting. The target is at most 500 us a step at 8 requests.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from paceline.plugins.contract import GraphFacts, LayerCache
from paceline.runtime.batch import Batch
from paceline.runtime.chain import Chain, SampleChains, SampledToken
from paceline.runtime.loop import Loop
from paceline.runtime.policies import Limits
from paceline.runtime.request import DraftMethod, RequestOptions
from paceline.runtime.sampling_params import SamplingParams
from paceline.runtime.step_stats import STAGES

MAX_POSITIONS = 8192
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


def greedy(logits: np.ndarray, chains: Sequence[Chain]) -> list[list[SampledToken]]:
    """Greedy chains by NumPy's argmax: what sampling costs without the native routine."""
    best = logits.argmax(axis=1).tolist()
    return [_until_mismatch(best[c.row : c.row + len(c.draft) + 1], c.draft) for c in chains]


def _until_mismatch(best: list[int], draft: tuple[int, ...]) -> list[SampledToken]:
    taken = []
    for token_id, guess in zip(best, (*draft, None), strict=True):
        taken.append(SampledToken(token_id))
        if token_id != guess:
            break
    return taken


def measure(drafting: DraftMethod, args: argparse.Namespace, sample: SampleChains) -> list[float]:
    """Median seconds of each stage, the engine's own time taken out of `run`."""
    num_pages = args.requests * MAX_POSITIONS // 16
    loop = Loop(InstantEngine(args.vocab, num_pages), sample, limits=Limits(max_num_seqs=args.requests))
    for i in range(args.requests):
        prompt = [(i + j) % 50 for j in range(args.prompt)]
        loop.submit(prompt, SamplingParams(max_tokens=MAX_POSITIONS - args.prompt), RequestOptions(drafting=drafting))
    laps = []
    while loop.has_work and len(laps) < args.steps:
        loop.step()
        stats = loop.last_step
        if stats is not None and stats.num_requests == args.requests:
            stages = list(stats.stage_s)
            stages[STAGES.index("run")] -= stats.engine_s
            laps.append(stages)
    return [median(stage) for stage in zip(*laps, strict=True)]


def main() -> None:
    """Print one table: a row per drafting method, a column per stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--prompt", type=int, default=500, help="prompt tokens of each request")
    parser.add_argument("--vocab", type=int, default=49152)
    args = parser.parse_args()
    lines = ["us/step  " + "".join(f"{name:>10}" for name in (*STAGES, "total"))]
    for drafting in (DraftMethod.NONE, DraftMethod.NGRAM):
        stages = measure(drafting, args, greedy)
        lines.append(f"{drafting.value:9}" + "".join(f"{1e6 * s:10.1f}" for s in (*stages, sum(stages))))
    lines.append(f"target: {TARGET_US:.0f} us at 8 requests, sampling with NumPy's argmax included")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
