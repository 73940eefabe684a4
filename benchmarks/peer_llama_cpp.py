"""llama.cpp as a contestant: `peer_llama_cpp.py '{"model": FILE, ...}'`, then jobs on stdin (worker.py).

Runs in the peers' environment on llama-cpp-python's low-level binding, since its high-level class serves one request
at a time. The loop here is what llama.cpp's own `parallel` example does: one `llama_decode` per step over all running
requests, each with its own sequence id, a free place taken by the next request. Options: `model`, `threads`, `streams`.
"""

import ctypes
import json
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import llama_cpp
import numpy as np
from worker import losses_and_favourites, serve

CONTEXT_TOKENS = 1024  # for each stream: the longest prompt is 512, the longest answer 256
BATCH_TOKENS = 512


@dataclass
class Stream:
    """One running request; `place` is its sequence id, `index` its prompt's."""

    place: int
    index: int
    pending: list[int]
    num_computed: int = 0
    output: list[int] = field(default_factory=list)


class LlamaCpp:
    """See worker.py: `Contestant`. It has no prompt lookup in the library, so `draft_tokens` must be 0."""

    def __init__(self, options: dict[str, Any]) -> None:
        llama_cpp.llama_backend_init()
        self._streams = options["streams"]
        self._model = llama_cpp.llama_model_load_from_file(
            options["model"].encode(), llama_cpp.llama_model_default_params()
        )
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = CONTEXT_TOKENS * self._streams
        params.n_batch = params.n_ubatch = BATCH_TOKENS
        params.n_seq_max = self._streams
        params.n_threads = params.n_threads_batch = options["threads"]
        params.kv_unified = True
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        self._batch = llama_cpp.llama_batch_init(BATCH_TOKENS, 0, 1)

    def versions(self) -> dict[str, str]:
        return {"llama-cpp-python": version("llama-cpp-python")}

    def generate(self, prompts: Sequence[Sequence[int]], max_tokens: int, draft_tokens: int) -> list[list[int]]:
        assert draft_tokens == 0, "no prompt lookup here"
        waiting = deque(enumerate(prompts))
        places = list(range(self._streams))
        running: list[Stream] = []
        outputs: list[list[int]] = [[] for _ in prompts]
        while waiting or running:
            while waiting and places:
                index, prompt = waiting.popleft()
                running.append(Stream(places.pop(), index, list(prompt)))
            self._step(running)
            for stream in [stream for stream in running if len(stream.output) == max_tokens]:
                outputs[stream.index] = stream.output
                self._forget(stream.place)
                places.append(stream.place)
                running.remove(stream)
        return outputs

    def score(self, window: Sequence[int]) -> tuple[list[float], list[int]]:
        assert len(window) <= BATCH_TOKENS, "a window is one batch"
        self._batch.n_tokens = 0
        for position, token_id in enumerate(window):
            self._add(token_id, position, 0, wants_logits=True)
        self._decode()
        logits = np.stack([self._logits(row) for row in range(len(window))])
        self._forget(0)
        return losses_and_favourites(logits, window)

    def _step(self, running: list[Stream]) -> None:
        """One decode: every stream's last token or as much of its prompt as fits; greedy tokens are appended."""
        self._batch.n_tokens = 0
        ends = []
        for stream in sorted(running, key=lambda one: len(one.pending)):
            part = stream.pending[: BATCH_TOKENS - self._batch.n_tokens]
            for offset, token_id in enumerate(part):
                is_last = offset == len(stream.pending) - 1
                self._add(token_id, stream.num_computed + offset, stream.place, wants_logits=is_last)
            stream.num_computed += len(part)
            stream.pending = stream.pending[len(part) :]
            if not stream.pending:
                ends.append((stream, self._batch.n_tokens - 1))
        self._decode()
        for stream, row in ends:
            token_id = int(self._logits(row).argmax())
            stream.output.append(token_id)
            stream.pending = [token_id]

    def _add(self, token_id: int, position: int, place: int, *, wants_logits: bool) -> None:
        batch, row = self._batch, self._batch.n_tokens
        batch.token[row] = token_id
        batch.pos[row] = position
        batch.n_seq_id[row] = 1
        batch.seq_id[row][0] = place
        batch.logits[row] = wants_logits
        batch.n_tokens = row + 1

    def _decode(self) -> None:
        status = llama_cpp.llama_decode(self._context, self._batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")

    def _logits(self, row: int) -> np.ndarray:
        """The row's logits [vocab], valid until the next decode."""
        pointer = llama_cpp.llama_get_logits_ith(self._context, row)
        address = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(address, shape=(self._vocab_size,))

    def _forget(self, place: int) -> None:
        llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(self._context), place, -1, -1)


def main() -> None:
    """Load the model and answer jobs."""
    serve(LlamaCpp(json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
