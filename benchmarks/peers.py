"""Measure Paceline and its peers in turns and write what came out: `python benchmarks/peers.py [--only WORD ...]`.

Rows of contestants.py flow in; one JSON file flows out, raw, one entry a measurement (report.py makes tables of it).
Within a repetition every workload goes through all rows before the next one begins, in an order that turns from
repetition to repetition, so that a machine that slows down slows all of them.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contestants import BUNDLES, MODELS, OPENVINO_TRIALS, ROWS, Row
from machine import describe_machine, wait_until_quiet
from quality import measure_quality
from worker_process import WorkerError, WorkerProcess
from workloads import MIXED_STREAMS, WORKLOADS, Job, jobs

from paceline.runtime.bundle import open_bundle
from paceline.runtime.tokenizer import BundleTokenizer

ACCEPTED_FOREIGN = 0.05  # of all cores; a measurement that was disturbed more is taken again
MOST_TRIES = 3


@dataclass
class Results:
    """What the JSON file holds; `failures` says for a row that could not run why."""

    machine: dict[str, Any]
    threads: int
    versions: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, str]] = field(default_factory=list)
    measurements: list[dict[str, Any]] = field(default_factory=list)
    quality: dict[str, dict[str, float]] = field(default_factory=dict)


def main() -> None:
    """Run the plan; the file is written anew after each repetition."""
    args = parse_arguments()
    rows = [row for row in (OPENVINO_TRIALS if args.trials else ROWS) if all(word in row.name for word in args.only)]
    tokenizer = BundleTokenizer(open_bundle(BUNDLES / "smollm2-135m"))
    results = Results(describe_machine().as_dict(), args.threads)
    if not args.trials and not args.no_quality:
        results.quality = measure_quality(rows, tokenizer, args.threads, MODELS / "logs", tell)
    with ExitStack() as stack:
        workers = start(rows, args.threads, stack, results)
        for repetition in range(args.repetitions):
            for job in jobs(tokenizer, repetition):
                if job.workload in args.workloads:
                    measure_in_turns(turned(workers, repetition), job, repetition, args.patience, results)
            write(results, args.output)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3, help="three go through all prompts once")
    parser.add_argument("--threads", type=int, default=2, help="of every contestant")
    parser.add_argument("--only", nargs="*", default=[], help="words that must be in a row's name")
    parser.add_argument("--workloads", nargs="*", default=WORKLOADS, choices=WORKLOADS)
    parser.add_argument("--trials", action="store_true", help="OpenVINO's options against its defaults instead")
    parser.add_argument("--no-quality", action="store_true", help="leave the perplexities out")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--output", type=Path, default=MODELS / "results.json")
    return parser.parse_args()


def start(rows: Sequence[Row], threads: int, stack: ExitStack, results: Results) -> list[WorkerProcess]:
    """Processes of all rows that come up, warmed."""
    workers = []
    for row in rows:
        worker = stack.enter_context(WorkerProcess(row, threads, MIXED_STREAMS, MODELS / "logs"))
        try:
            results.versions.update(worker.ask(do="versions")["versions"])
            worker.generate([[1, 2, 3, 4]] * MIXED_STREAMS, 8, MIXED_STREAMS)
        except WorkerError as error:
            results.failures[row.name] = str(error)
            tell(str(error))
            continue
        results.rows.append({"name": row.name, "engine": row.engine, "precision": row.precision})
        workers.append(worker)
        tell(f"open: {row.name}")
    return workers


def turned(workers: list[WorkerProcess], repetition: int) -> list[WorkerProcess]:
    """Forwards and backwards in turn: whoever runs behind a heavy neighbour does so every other time."""
    return workers if repetition % 2 == 0 else workers[::-1]


def measure_in_turns(
    workers: Sequence[WorkerProcess], job: Job, repetition: int, patience_s: float, results: Results
) -> None:
    """One measurement of `job` for every worker."""
    for worker in workers:
        taken = measure(worker, job, patience_s)
        results.measurements.append(
            {"row": worker.row.name, "workload": job.workload, "repetition": repetition} | taken
        )
        tell(f"{repetition} {job.workload:8} {worker.row.name:40} {taken['tokens_per_s']:8.1f} tok/s")


def measure(worker: WorkerProcess, job: Job, patience_s: float) -> dict[str, Any]:
    """The least disturbed of up to `MOST_TRIES` tries."""
    tries = []
    for _ in range(MOST_TRIES):
        wait_until_quiet(patience_s)
        tries.append(measure_once(worker, job))
        if tries[-1]["foreign"] <= ACCEPTED_FOREIGN:
            break
    return min(tries, key=lambda one: one["foreign"])


def measure_once(worker: WorkerProcess, job: Job) -> dict[str, Any]:
    """`tokens_per_s` counts decoded tokens for single streams, prompt tokens for prefill, else output tokens."""
    first = worker.generate(job.prompts, 1, job.streams) if job.first_tokens else None
    whole = worker.generate(job.prompts, job.max_tokens, job.streams)
    seconds = whole["seconds"] - (first["seconds"] if first else 0.0)
    if job.max_tokens == 1:
        tokens = sum(map(len, job.prompts))
    else:
        tokens = len(job.prompts) * (job.max_tokens - (1 if first else 0))
    return {
        "tokens_per_s": tokens / seconds,
        "seconds": whole["seconds"],
        "foreign": max(whole["foreign"], first["foreign"] if first else 0.0),
        "outputs": [digest(ids) for ids in whole["token_ids"]],
    }


def digest(ids: Sequence[int]) -> str:
    """Enough of a hash to tell whether two rows wrote the same."""
    return hashlib.sha256(json.dumps(list(ids)).encode()).hexdigest()[:12]


def write(results: Results, path: Path) -> None:
    """Replace the file by the results so far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(vars(results), indent=1))


def tell(text: str) -> None:
    """One line of progress to the person who waits."""
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    main()
