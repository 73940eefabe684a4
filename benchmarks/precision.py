"""Every number format on the demo model beside nvidia-modelopt: perplexity, divergence, agreement, bytes.

    python benchmarks/precision.py [ours|modelopt]      writes build/precision.json and docs/precision.md

With one side named, the other side's figures are those of the last run.

Ours: each format is built as `paceline build` builds it (calibrated on the shipped sample) and measured twice, the
portable graph on stock onnxruntime and the engine with our kernels, against the float32 graph. modelopt's: fake
quantisation in torch in an environment of its own, calibrated on the same windows, against transformers in float32.
"""

import argparse
import json
import math
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from precision_report import write_report
from precision_text import heldout_kinds
from write_models import write_folder

from paceline.passes.target import Target
from paceline.toolchain.build import target_of
from paceline.toolchain.build_role import RoleBuild, RoleJob, num_threads
from paceline.toolchain.checkpoint import open_checkpoint
from paceline.toolchain.evaluate import Accuracy, ReferenceScores, measure_accuracy
from paceline.toolchain.progress import Console
from paceline.toolchain.recipe import Recipe, load_recipe
from paceline.toolchain.sample_text import load_sample, windows_of
from paceline.toolchain.window_runner import WindowRunner

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / "recipes" / "smollm2-135m.yaml"
FIGURES = ROOT / "build" / "precision.json"
MODELOPT = ROOT / ".venv-modelopt" / "bin" / "python"
CONTESTANTS: Mapping[str, Mapping[str, object]] = {  # name in the tables: keys laid over the recipe
    "bf16": {"quantization.weights": "bf16"},
    "fp16": {"quantization.weights": "fp16"},
    "fp8": {"quantization.weights": "fp8"},
    "int8, not smoothed": {
        "quantization.weights": "int8",
        "quantization.head": "bf16",
        "quantization.smoothing": "none",
    },
    "int8": {"quantization.weights": "int8", "quantization.head": "bf16"},
    "int8_rows16": {"quantization.weights": "int8_rows16"},
    "int8_weight_only, 64": {"quantization.weights": "int8_weight_only", "quantization.head": "bf16"},
    **{
        f"int4_weight_only, {block}": {
            "quantization.weights": "int4_weight_only",
            "quantization.head": "bf16",
            "quantization.block_size": block,
        }
        for block in (32, 64, 128)
    },
    "bf16, fp8 cache": {"quantization.weights": "bf16", "kv_cache.dtype": "fp8"},
}


@dataclass(frozen=True)
class Bench:
    """The float32 graph and its scores by kind, once for all contestants."""

    build: RoleBuild
    job: RoleJob
    references: Mapping[str, ReferenceScores]


def main() -> None:
    """Measure both sides or one; each is written as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side", choices=("ours", "modelopt"), nargs="?")
    side = parser.parse_args().side
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    with TemporaryDirectory(prefix="precision-") as folder:
        bench = open_bench(Path(folder))
        if side != "modelopt":
            keep(figures, "ours", {name: measure(bench, overrides) for name, overrides in CONTESTANTS.items()})
        if side != "ours":
            keep(figures, "modelopt", modelopt(bench, Path(folder)))
    write_report(figures, ROOT / "docs" / "precision.md")


def keep(figures: dict[str, object], side: str, found: Mapping[str, object]) -> None:
    """Put one side's figures beside the other's, in memory and in the file."""
    figures[side] = found
    FIGURES.parent.mkdir(exist_ok=True)
    FIGURES.write_text(json.dumps(figures, indent=2) + "\n")


def open_bench(folder: Path) -> Bench:
    """Export and optimize the model; score the held-out text with it."""
    recipe = load_recipe(RECIPE)
    job = job_of(recipe, folder)
    build = RoleBuild(job)
    path = folder / "float32.onnx"
    build.save_float(path)
    runner = WindowRunner.on_stock(path, build.float_facts, num_threads())
    references = {}
    for kind, windows in heldout_kinds(job.tokenizer).items():
        (folder / kind).mkdir()
        references[kind] = ReferenceScores(runner, windows, folder / kind)
    return Bench(build, job, references)


def job_of(recipe: Recipe, folder: Path) -> RoleJob:
    """The target role, its files in `folder`."""
    return RoleJob(
        "target",
        open_checkpoint(recipe.target.checkpoint),
        recipe,
        target_of(recipe),
        staging=folder,
        work=folder,
        progress=Console(),
        kept=folder,
        checks="none",
    )


def measure(bench: Bench, overrides: Mapping[str, object]) -> dict[str, object]:
    """One format: built, measured by kind and in all, and weighed."""
    job = replace(bench.job, recipe=load_recipe(RECIPE, overrides), target=target_of(load_recipe(RECIPE, overrides)))
    build = bench.build.for_job(job)
    target: Target = build.calibrated()
    build.write(target)
    runners = {
        "portable": WindowRunner.on_stock(job.graph_path(), build.facts, num_threads()),
        "engine": WindowRunner.with_kernels(job.engine_path(), build.facts, num_threads()),
    }
    found: dict[str, object] = {
        name: {kind: measure_accuracy(one, runner).as_dict() for kind, one in bench.references.items()}
        for name, runner in runners.items()
    }
    for name, path in (("portable_bytes", job.graph_path()), ("engine_bytes", job.engine_path())):
        found[name] = path.with_name(f"{path.name}.data").stat().st_size
    return found


def modelopt(bench: Bench, folder: Path) -> dict[str, object]:
    """The peer's figures in the same form, or why there are none."""
    if not MODELOPT.exists():
        return {"error": "not installed: make precision sets it up"}
    model = ROOT / "build" / "peers" / "checkpoint"
    write_folder(bench.job.checkpoint, model)
    options = bench.job.recipe.calibration
    windows = windows_of(load_sample(options.dataset), bench.job.tokenizer, options.window, options.max_tokens)
    job = {
        "model": str(model),
        "calibration": [window for kind in windows.values() for window in kind],
        "heldout": {kind: list(one.windows) for kind, one in bench.references.items()},
    }
    path, answer = folder / "job.json", folder / "answer.json"
    path.write_text(json.dumps(job))
    command = [str(MODELOPT), str(ROOT / "benchmarks" / "peer_modelopt.py"), str(path), str(answer)]
    done = subprocess.run(command, timeout=3600, check=False)
    if done.returncode:
        return {"error": f"exit status {done.returncode}"}
    return {name: _accuracies(found) for name, found in json.loads(answer.read_text()).items()}


def _accuracies(found: object) -> object:
    """Sums by kind become the figures that ours have."""
    if not isinstance(found, dict) or "error" in found:
        return found
    return {
        kind: Accuracy(
            one["positions"],
            math.exp(one["loss"] / one["losses"]),
            math.exp(one["reference_loss"] / one["losses"]),
            one["divergence"] / one["positions"],
            one["same"] / one["positions"],
        ).as_dict()
        for kind, one in found.items()
    }


if __name__ == "__main__":
    main()
