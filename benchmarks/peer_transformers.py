"""transformers in fp32 as the reference of quality: `peer_transformers.py '{"model": FOLDER, "threads": 2}'`.

Runs in the main environment on the dequantised weights that every contestant starts from. It only scores: its
`generate` is several times slower than anything compared here.
"""

import json
import sys
from collections.abc import Sequence
from importlib.metadata import version

import torch
from transformers import AutoModelForCausalLM
from worker import losses_and_favourites, serve


class Reference:
    """See worker.py: `Contestant`."""

    def __init__(self, model: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("transformers", "torch")}

    def generate(self, prompts: Sequence[Sequence[int]], max_tokens: int, draft_tokens: int) -> list[list[int]]:
        raise NotImplementedError("the reference only scores")

    def score(self, window: Sequence[int]) -> tuple[list[float], list[int]]:
        with torch.inference_mode():
            logits = self._model(torch.tensor([list(window)])).logits[0]
        return losses_and_favourites(logits.numpy(), window)


def main() -> None:
    """Load the model and answer jobs."""
    options = json.loads(sys.argv[1])
    serve(Reference(options["model"], options["threads"]))


if __name__ == "__main__":
    main()
