"""OpenVINO GenAI as a contestant: `peer_openvino.py '{"model": FOLDER, ...}'`, then jobs on stdin (worker.py).

Runs in the peers' environment: ContinuousBatchingPipeline, prompts as token ids (the same that we get). Options:
`model` and `tokenizer` (folders), `threads`, `streams`, `lookup` (open for prompt lookup; a pipeline is one or the
other), `scheduler` and `properties` (whatever else SchedulerConfig and the CPU plugin take, by their own names).
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai
from worker import losses_and_favourites, serve

MAX_NGRAM = 3  # its documentation's own example


class OpenVino:
    """See worker.py: `Contestant`."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._properties = {
            "INFERENCE_NUM_THREADS": options["threads"],
            "PERFORMANCE_HINT": "LATENCY",
            **options.get("properties", {}),
        }
        self._request: openvino.InferRequest | None = None
        tokenizer = genai.Tokenizer(options["tokenizer"])
        lookup = {"prompt_lookup": True} if options["lookup"] else {}
        self._pipeline = genai.ContinuousBatchingPipeline(
            options["model"], tokenizer, scheduler_config(options), "CPU", **self._properties, **lookup
        )

    def versions(self) -> dict[str, str]:
        return {"openvino": openvino.__version__, "openvino-genai": genai.__version__}

    def generate(self, prompts: Sequence[Sequence[int]], max_tokens: int, draft_tokens: int) -> list[list[int]]:
        ids = [openvino.Tensor(np.array([prompt], np.int64)) for prompt in prompts]
        results = self._pipeline.generate(ids, [generation_config(max_tokens, draft_tokens)] * len(ids))
        return [list(result.m_generation_ids[0]) for result in results]

    def score(self, window: Sequence[int]) -> tuple[list[float], list[int]]:
        """By the plain model with its state, which the pipeline is made from: the pipeline hands out no logits."""
        if self._request is None:
            compiled = openvino.Core().compile_model(
                f"{self._options['model']}/openvino_model.xml", "CPU", self._properties
            )
            self._request = compiled.create_infer_request()
        self._request.reset_state()
        count = len(window)
        outputs = self._request.infer(
            {
                "input_ids": np.array([window], np.int64),
                "attention_mask": np.ones((1, count), np.int64),
                "position_ids": np.arange(count, dtype=np.int64)[None],
                "beam_idx": np.zeros(1, np.int32),
            }
        )
        return losses_and_favourites(outputs["logits"][0], window)


def scheduler_config(options: dict[str, Any]) -> genai.SchedulerConfig:
    """No prefix cache: every prompt is computed, as ours is."""
    config = genai.SchedulerConfig()
    config.cache_size = 1  # GB
    config.max_num_seqs = options["streams"]
    config.enable_prefix_caching = False
    for name, value in options.get("scheduler", {}).items():
        setattr(config, name, value)
    return config


def generation_config(max_tokens: int, draft_tokens: int) -> genai.GenerationConfig:
    config = genai.GenerationConfig()
    config.max_new_tokens = max_tokens
    config.ignore_eos = True
    config.do_sample = False
    config.apply_chat_template = False
    if draft_tokens:
        config.num_assistant_tokens = draft_tokens
        config.max_ngram_size = MAX_NGRAM
    return config


def main() -> None:
    """Open the pipeline and answer jobs."""
    serve(OpenVino(json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
