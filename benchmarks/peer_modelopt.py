"""nvidia-modelopt's fake quantisation of the same weights, scored on the same windows; runs in .venv-modelopt.

In: a file with a model folder, calibration windows and held-out windows by kind. Out: a JSON file, by
configuration and kind: tokens, loss, reference loss, divergence, agreements, summed. Nothing of paceline is imported.
"""

import copy
import json
import sys
import time
from pathlib import Path

import modelopt
import modelopt.torch.quantization as mtq
import torch
from transformers import AutoModelForCausalLM

CONFIGS = ("FP8_DEFAULT_CFG", "INT8_DEFAULT_CFG", "INT8_SMOOTHQUANT_CFG", "INT4_AWQ_CFG")


def main(job_path: str, answer_path: str) -> None:
    """Score every configuration; one that fails says why in its place."""
    job = json.loads(Path(job_path).read_text())
    model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32).eval()
    references = {
        kind: [log_probabilities(model, window) for window in windows] for kind, windows in job["heldout"].items()
    }
    answer: dict[str, object] = {"version": modelopt.__version__}
    for name in CONFIGS:
        begin = time.perf_counter()
        try:
            quantized = quantize(model, name, job["calibration"])
            answer[name] = {kind: score(quantized, job["heldout"][kind], references[kind]) for kind in references}
        except Exception as error:  # whatever a configuration stumbles over becomes its row
            answer[name] = {"error": f"{type(error).__name__}: {error}"}
        print(f"{name} {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    Path(answer_path).write_text(json.dumps(answer))


def quantize(model: torch.nn.Module, name: str, calibration: list[list[int]]) -> torch.nn.Module:
    """A copy of `model` with modelopt's quantizers, calibrated on the windows."""

    def forward(one: torch.nn.Module) -> None:
        with torch.no_grad():
            for window in calibration:
                one(torch.tensor([window]))

    return mtq.quantize(copy.deepcopy(model), copy.deepcopy(getattr(mtq, name)), forward)


def log_probabilities(model: torch.nn.Module, window: list[int]) -> torch.Tensor:
    """[T, vocab]."""
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([window])).logits[0].float(), dim=-1)


def score(model: torch.nn.Module, windows: list[list[int]], references: list[torch.Tensor]) -> dict[str, float]:
    """Sums over all windows of one kind."""
    sums = {"losses": 0, "loss": 0.0, "reference_loss": 0.0, "positions": 0, "divergence": 0.0, "same": 0}
    for window, p in zip(windows, references, strict=True):
        q = log_probabilities(model, window)
        following = torch.tensor(window[1:])[:, None]
        sums["losses"] += len(following)
        sums["loss"] -= float(q[:-1].gather(1, following).double().sum())
        sums["reference_loss"] -= float(p[:-1].gather(1, following).double().sum())
        sums["positions"] += len(window)
        sums["divergence"] += float((p.exp() * (p - q)).double().sum())
        sums["same"] += int((p.argmax(dim=1) == q.argmax(dim=1)).sum())
    return sums


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
