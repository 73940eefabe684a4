"""How far `paceline plan` is off: forecasts beside what a build and a full runtime really took.

A recipe flows in; for each precision a build and a run, each in a process of its own, and a table in Markdown flow out.
The running bundle is loaded to its limits: ids from the whole vocabulary, steps of the most tokens, a full batch with
drafts, and requests until every page has been written. Linux only (/proc).

    python benchmarks/plan_accuracy.py --recipe recipes/smollm2-135m.yaml --formats fp32,bf16,int8
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MIB = 1 << 20

RUN = """
import json, random, sys
from pathlib import Path
from paceline.runtime.open import open_runtime
from paceline.runtime.sampling_params import SamplingParams

opened = open_runtime(Path(sys.argv[1]))
facts, loop = opened.bundle.role("target").facts, opened.runtime.loop
draw = random.Random(0)
ids = lambda count: [draw.randrange(facts.vocab_size) for _ in range(count)]
chunk, length = loop.limits.max_num_batched_tokens, min(1000, facts.max_positions - 8)
few = SamplingParams(max_tokens=4, ignore_eos=True)
with opened.runtime as runtime:
    runtime.generate([ids(min(chunk + 1, length))], few, opened.defaults)
    batch = [ids(8) * 3 for _ in range(loop.limits.max_num_seqs)]
    runtime.generate(batch, SamplingParams(max_tokens=24, ignore_eos=True), opened.defaults)
    fills = -(-loop.pool.num_pages * facts.page_size // length) + 1
    runtime.generate([ids(length) for _ in range(fills)], few, opened.defaults)
status = Path("/proc/self/status").read_text().split()
json.dump({"rss_bytes": int(status[status.index("VmRSS:") + 1]) * 1024}, sys.stdout)
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=ROOT / "recipes" / "smollm2-135m.yaml")
    parser.add_argument("--formats", default="fp32,bf16,int8")
    parser.add_argument("--flags", default="", help="further flags of plan and build, e.g. '--max-batch-size 8'")
    options = parser.parse_args()
    print("| precision | what | forecast MiB | measured MiB | off by |\n|---|---|---|---|---|")
    for weights in options.formats.split(","):
        flags = ["--weights", weights, *options.flags.split()]
        for what, forecast, measured in compare(options.recipe, flags):
            off = f"{forecast / measured - 1:+.1%}"
            print(f"| {weights} | {what} | {forecast / MIB:,.2f} | {measured / MIB:,.2f} | {off} |", flush=True)


def compare(recipe: Path, flags: list[str]) -> Iterator[tuple[str, int, int]]:
    """What, forecast and measured bytes, one after the other."""
    plan = paceline("plan", recipe, *flags)
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        built = paceline("build", recipe, "-o", bundle, *flags)
        yield "build, peak", plan["build"]["peak_bytes"], built["peak_bytes"]
        yield "running, everything touched", plan["run"]["total_bytes"], measured_run(bundle)
        sizes = {name: (bundle / name).stat().st_size for name in plan["files"]}
        for name in sorted(name for name in sizes if name.endswith(".onnx.data")):
            yield f"`{name}`", plan["files"][name], sizes[name]
        yield "all files", sum(plan["files"].values()), sum(one.stat().st_size for one in bundle.rglob("*.*"))


def measured_run(bundle: Path) -> int:
    """Resident bytes of a process that has done everything its limits allow."""
    done = subprocess.run([sys.executable, "-c", RUN, str(bundle)], capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout)["rss_bytes"])


def paceline(*arguments: object) -> dict[str, Any]:
    """What a verb says in JSON."""
    command = [str(Path(sys.executable).parent / "paceline"), *map(str, arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


if __name__ == "__main__":
    main()
