"""Paceline as a contestant: `ours.py '{"bundle": FOLDER, "threads": 2, "streams": 8}'`, then jobs on stdin (worker.py).

Runs in the main environment on the runtime alone, as a deployed bundle does.
"""

import json
import sys
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import numpy as np
from worker import losses_and_favourites, serve

from paceline.runtime.batch import Batch
from paceline.runtime.bundle import open_bundle
from paceline.runtime.engine_cpu import CpuEngine
from paceline.runtime.open import Settings, open_runtime
from paceline.runtime.request import DraftMethod, RequestOptions
from paceline.runtime.sampling_params import SamplingParams

SCORER_PAGES = 64  # 1,024 tokens; windows are shorter


class Paceline:
    """See worker.py: `Contestant`."""

    def __init__(self, bundle: Path, threads: int, streams: int) -> None:
        settings = Settings(max_num_seqs=streams, threads=threads, drafting=DraftMethod.NGRAM)
        self._runtime = open_runtime(bundle, settings).runtime
        self._bundle = bundle
        self._threads = threads

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("paceline", "onnxruntime")}

    def generate(self, prompts: Sequence[Sequence[int]], max_tokens: int, draft_tokens: int) -> list[list[int]]:
        drafting = DraftMethod.NGRAM if draft_tokens else DraftMethod.NONE
        options = RequestOptions(drafting=drafting, num_draft_tokens=max(1, draft_tokens))
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        self._runtime.loop.pool.drop_cached()
        return [list(completion.token_ids) for completion in self._runtime.generate(prompts, params, options)]

    def score(self, window: Sequence[int]) -> tuple[list[float], list[int]]:
        engine = self._scorer
        return losses_and_favourites(engine.run(whole_window(window, engine.num_pages)), window)

    @cached_property
    def _scorer(self) -> CpuEngine:
        """The target's engine once more, with a small pool: scoring wants the logits of every row."""
        bundle = open_bundle(self._bundle)
        facts = bundle.role("target").facts
        return CpuEngine.open(bundle.engine("target", "cpu")[1], facts, SCORER_PAGES, self._threads)


def whole_window(window: Sequence[int], num_pages: int) -> Batch:
    """One request that computes all of `window` in one step and asks for every row's logits."""
    count = len(window)
    return Batch(
        input_ids=np.array(window, np.int64),
        positions=np.arange(count, dtype=np.int64),
        query_start=np.array([0, count], np.int32),
        context_len=np.array([count], np.int32),
        page_table=np.arange(num_pages, dtype=np.int32)[None],
        logit_rows=np.arange(count, dtype=np.int64),
    )


def main() -> None:
    """Open the bundle and answer jobs."""
    options = json.loads(sys.argv[1])
    serve(Paceline(Path(options["bundle"]), options["threads"], options["streams"]))


if __name__ == "__main__":
    main()
