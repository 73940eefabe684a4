"""Measuring a bundle as a client would see it: closed streams over a queue of prompts, a fixed number of tokens each.

Prompts and a drafting method flow in, one `Measurement` flows out. Every request writes the same number of tokens:
letting fast requests run longer and counting what they add shows gains where fixed work shows a loss.
"""

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace

from ..runtime.completion import Completion
from ..runtime.generate import Runtime
from ..runtime.request import DraftMethod, RequestOptions
from ..runtime.sampling_params import SamplingParams
from ..runtime.step_stats import Counters

__all__ = ["Measurement", "measure"]


@dataclass(frozen=True)
class Measurement:
    """One method on one set of prompts. Times in milliseconds, by request.

    `ttft_ms` is the median time to the first token, `tpot_*` the time per further token (last minus first over their
    number), `acceptance` the share of draft tokens that the target agreed with, `tokens_per_turn` what a request got
    from one step of the target.
    """

    method: str
    streams: int
    tokens_per_s: float
    ttft_ms: float
    tpot_p50_ms: float
    tpot_p95_ms: float
    acceptance: float | None
    tokens_per_turn: float
    token_ids: tuple[tuple[int, ...], ...]

    def as_dict(self) -> dict[str, object]:
        """The figures as a JSON object, without the tokens."""
        return {key: value for key, value in asdict(self).items() if key != "token_ids"}


def measure(
    runtime: Runtime,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    options: RequestOptions,
    streams: int,
) -> Measurement:
    """Serve `prompts`, `streams` at a time. The prefix cache is emptied first: no prompt is known yet."""
    runtime.loop.pool.drop_cached()
    before = replace(runtime.loop.counters)
    begin = time.perf_counter()
    with ThreadPoolExecutor(streams) as clients:
        completions = [
            answers[0] for answers in clients.map(lambda prompt: runtime.generate([prompt], params, options), prompts)
        ]
    seconds = time.perf_counter() - begin
    return _measurement(options.drafting, streams, seconds, completions, before, runtime.loop.counters)


def _measurement(
    method: DraftMethod,
    streams: int,
    seconds: float,
    completions: Sequence[Completion],
    before: Counters,
    after: Counters,
) -> Measurement:
    first = [one.emitted_s[0] for one in completions]
    pace = [
        (one.emitted_s[-1] - one.emitted_s[0]) / (len(one.emitted_s) - 1)
        for one in completions
        if len(one.emitted_s) > 1
    ] or [0.0]
    drafted = after.draft_tokens - before.draft_tokens
    return Measurement(
        method=str(method),
        streams=streams,
        tokens_per_s=sum(len(one.tokens) for one in completions) / seconds,
        ttft_ms=1e3 * statistics.median(first),
        tpot_p50_ms=1e3 * statistics.median(pace),
        tpot_p95_ms=1e3 * sorted(pace)[int(0.95 * (len(pace) - 1) + 0.5)],
        acceptance=(after.accepted_tokens - before.accepted_tokens) / drafted if drafted else None,
        tokens_per_turn=(after.output_tokens - before.output_tokens) / max(1, after.chains - before.chains),
        token_ids=tuple(one.token_ids for one in completions),
    )
