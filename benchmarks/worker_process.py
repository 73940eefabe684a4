"""One contestant's process seen from the driver: started, asked, stopped (the other end is worker.py).

A row of the table flows in; answers flow out, each with how much of the machine others used meanwhile. Starting a
process per measurement lost: loading and compiling cost more than what is measured.
"""

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from contestants import Row
from machine import BusyMeter

__all__ = ["WorkerError", "WorkerProcess"]

HERE = Path(__file__).resolve().parent
LAST_WORDS = 2000  # characters of a dead worker's stderr that are worth showing


class WorkerError(Exception):
    """A worker that ended instead of answering."""


class WorkerProcess:
    """A context manager; `ask` sends one job and waits for its answer."""

    def __init__(self, row: Row, threads: int, streams: int, log_folder: Path) -> None:
        self.row = row
        log_folder.mkdir(parents=True, exist_ok=True)
        self._log = log_folder / f"{row.name.replace(' ', '-').replace(',', '')}.log"
        options = {**row.options, "threads": threads, "streams": streams}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [str(row.python), str(HERE / row.worker), json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def __enter__(self) -> "WorkerProcess":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def ask(self, **job: Any) -> dict[str, Any]:
        """The answer to `job`. Raises: WorkerError with the end of its stderr."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(f"{self.row.name} ended: {self._log.read_text()[-LAST_WORDS:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def generate(self, prompts: list[list[int]], max_tokens: int, streams: int) -> dict[str, Any]:
        """Seconds, token ids, and `foreign`: the share of all cores that was not at this worker's disposal."""
        meter = BusyMeter()
        answer = self.ask(
            do="generate",
            prompts=prompts,
            max_tokens=max_tokens,
            streams=streams,
            draft_tokens=self.row.draft_tokens,
        )
        answer["foreign"] = meter.foreign_share(answer["cpu_s"])
        return answer
