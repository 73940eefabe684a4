"""Raw results to docs/benchmarks.md: `python benchmarks/report.py [RESULTS.json] [--trials TRIALS.json] [-o FILE]`.

In: what peers.py wrote. Out: tables with machine, versions and date. A cell is the median over repetitions; a ratio is
the median of the ratios within each repetition, which a slow quarter of an hour leaves alone.
"""

import argparse
import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORKLOADS = ("chat", "code", "copying", "mixed", "prefill")
PEER = "OpenVINO GenAI"

METHOD = """\
Every row is a process of its own on the same dequantised weights and the same token ids, greedy, with a fixed number of
tokens per request whatever the text says. Within a repetition all rows take turns on a workload before the next one
begins. A measurement during which others used more than 5 % of the machine is taken again; the most disturbed
one that was kept had {worst:.0%}.

- **chat, code, copying**: one stream, decoded tokens per second without the prompt; 128 tokens for each of 12 prompts.
- **mixed**: 24 requests of all three kinds, at most 8 at a time, output tokens per second with the prompts' time.
- **prefill**: prompt tokens per second for 512-token prompts, until the first token.
- **prompt lookup**: up to 4 tokens guessed from prompt and output at every step (fixed, no controller).
- In brackets: how many times as fast as the plain row of OpenVINO GenAI in the same precision.
"""

QUALITY = """\
Perplexity on 16 windows of 512 tokens of held-out text (docstrings of Python {python}), and how often the likeliest
token is the reference's: transformers in fp32 on the same weights. OpenVINO is scored by the model that its
pipeline is made from.
"""


HOST = """\
Median microseconds a step at {requests} requests, greedy: with an engine that answers at once, and in steps of the real
engine, which leaves the processor's caches full of weights. The target is {target_us:.0f}.
"""

BUILDS = """\
Target and draft, from the package's GGUF file to a packed bundle. The weights in fp32 would be 538 MB; the aim is at
most 90 s and twice that.
"""


def main() -> None:
    """Write the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", default=ROOT / "build" / "peers" / "results.json")
    parser.add_argument("--trials", type=Path, help="results of `peers.py --trials`")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "benchmarks.md")
    args = parser.parse_args()
    trials = json.loads(args.trials.read_text()) if args.trials else None
    args.output.write_text(document(json.loads(args.results.read_text()), trials), encoding="utf-8")


def document(results: dict[str, Any], trials: dict[str, Any] | None) -> str:
    """The whole page."""
    parts = ["# Benchmarks", "Written by `make bench`; see benchmarks/README.md.", conditions(results)]
    parts += ["## Speed", METHOD.format(worst=max(one["foreign"] for one in results["measurements"]))]
    for precision in ("bf16", "int8"):
        rows = [row["name"] for row in results["rows"] if row["precision"] == precision]
        if rows:
            parts += [f"### {precision} weights, tokens per second", speed_table(results, rows, f"{PEER} {precision}")]
    parts += [lookup_against_lookup(results), same_tokens(results)]
    parts += [f"{name} did not run: {reason.splitlines()[-1]}" for name, reason in results["failures"].items()]
    if results["quality"]:
        parts += ["## Quality", QUALITY.format(python=results["machine"]["python"]), quality_table(results["quality"])]
    parts += own_costs(ROOT / "build" / "peers" / "host_overhead.json", sorted((ROOT / "bundles").glob("*/")))
    if trials:
        parts += ["## What was tried to make OpenVINO faster", trials_text(trials)]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def conditions(results: dict[str, Any]) -> str:
    """One paragraph: machine, threads, versions, date."""
    machine, versions = results["machine"], results["versions"]
    software = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return (
        f"{machine['date']}, {machine['processor']}, {machine['cores']} cores ({', '.join(machine['features'])}), "
        f"{machine['memory_gib']} GiB, {machine['system']}, Python {machine['python']}; {results['threads']} threads "
        f"each. Model: SmolLM2-135M-Instruct. {software}."
    )


def speed_table(results: dict[str, Any], rows: Sequence[str], base: str) -> str:
    """One line a row, one column a workload, each with its ratio to `base`."""
    lines = []
    for name in rows:
        cells = [speed_cell(results["measurements"], name, base, workload) for workload in WORKLOADS]
        lines.append([name, *cells])
    return markdown_table(["", *WORKLOADS], lines)


def speed_cell(measurements: Sequence[dict[str, Any]], name: str, base: str, workload: str) -> str:
    """ "103 (1.58x)", or a dash where nothing was measured."""
    own = by_repetition(measurements, name, workload)
    if not own:
        return "-"
    others = by_repetition(measurements, base, workload)
    speed = f"{statistics.median(one['tokens_per_s'] for one in own.values()):.0f}"
    ratios = [own[i]["tokens_per_s"] / others[i]["tokens_per_s"] for i in own if i in others]
    return f"{speed} ({statistics.median(ratios):.2f}x)" if ratios and name != base else speed


def by_repetition(measurements: Iterable[dict[str, Any]], name: str, workload: str) -> dict[int, dict[str, Any]]:
    """The row's measurements of one workload, by repetition."""
    return {one["repetition"]: one for one in measurements if (one["row"], one["workload"]) == (name, workload)}


def lookup_against_lookup(results: dict[str, Any]) -> str:
    """Both with prompt lookup: the ratio of the two, by precision and kind of text."""
    names = {row["name"] for row in results["rows"]}
    sentences = []
    for precision in ("bf16", "int8"):
        own, other = (f"{engine} {precision} + prompt lookup" for engine in ("Paceline", PEER))
        if {own, other} <= names:
            ratios = [ratio_text(results["measurements"], own, other, kind) for kind in ("chat", "code", "copying")]
            sentences.append(f"{precision} {', '.join(ratios)}")
    return f"Prompt lookup against {PEER}'s prompt lookup: {'; '.join(sentences)}." if sentences else ""


def ratio_text(measurements: Sequence[dict[str, Any]], name: str, base: str, workload: str) -> str:
    """ "copying 1.67x", the median over repetitions."""
    own, other = (by_repetition(measurements, each, workload) for each in (name, base))
    ratios = [own[i]["tokens_per_s"] / other[i]["tokens_per_s"] for i in own if i in other]
    return f"{workload} {statistics.median(ratios):.2f}x"


def same_tokens(results: dict[str, Any]) -> str:
    """For each row with lookup: how many of its answers are, token for token, those of its plain row."""
    sentences = []
    for name in (row["name"] for row in results["rows"]):
        plain, lookup, _ = name.partition(" + prompt lookup")
        if lookup:
            same, count = count_same(results["measurements"], name, plain)
            sentences.append(f"{plain} {same} of {count}")
    if not sentences:
        return ""
    return f"Answers that prompt lookup left unchanged, token for token: {'; '.join(sentences)}."


def count_same(measurements: Sequence[dict[str, Any]], name: str, plain: str) -> tuple[int, int]:
    """Equal answers and all answers, over every workload and repetition that both rows have."""
    same = count = 0
    for workload in WORKLOADS:
        own, other = (by_repetition(measurements, each, workload) for each in (name, plain))
        pairs = [pair for i in own if i in other for pair in zip(own[i]["outputs"], other[i]["outputs"], strict=True)]
        same += sum(a == b for a, b in pairs)
        count += len(pairs)
    return same, count


def quality_table(quality: dict[str, dict[str, float]]) -> str:
    """One line a row."""
    lines = [
        [name, f"{one['perplexity']:.4f}", f"{one['ratio']:.5f}", f"{one['agreement']:.2%}"]
        for name, one in quality.items()
    ]
    return markdown_table(["", "perplexity", "/ fp32", "same likeliest token"], lines)


def own_costs(host: Path, bundles: Sequence[Path]) -> list[str]:
    """What a step costs outside the engine and what a build costs, as far as both were measured here."""
    parts = []
    if host.is_file():
        measured = json.loads(host.read_text())
        stages = [key for key in measured["rows"][0] if key not in ("engine", "drafting")]
        lines = [
            [f"{row['engine']}, {row['drafting']}", *(f"{row[stage]:.0f}" for stage in stages)]
            for row in measured["rows"]
        ]
        parts += ["## Outside the engine", HOST.format(**measured), markdown_table(["", *stages], lines)]
    reports = [(folder.name, folder / "reports" / "build.json") for folder in bundles]
    builds = [(name, json.loads(path.read_text())) for name, path in reports if path.is_file()]
    if builds:
        lines = [
            [name, f"{report['seconds']:.0f} s", f"{report['peak_bytes'] / 1e6:.0f} MB"] for name, report in builds
        ]
        parts += ["## Builds", BUILDS, markdown_table(["bundle", "time", "peak memory"], lines)]
    return parts


def trials_text(trials: dict[str, Any]) -> str:
    """Each option against the row of the tables above, in turns; then what did not run."""
    rows = [row["name"] for row in trials["rows"]]
    workloads = [w for w in WORKLOADS if any(one["workload"] == w for one in trials["measurements"])]
    lines = []
    for name in rows:
        base = name.partition(",")[0]
        lines.append([name, *(speed_cell(trials["measurements"], name, base, workload) for workload in workloads)])
    failed = [f"{name} did not run." for name in trials["failures"]]
    return "\n\n".join([markdown_table(["", *workloads], lines), *failed])


def markdown_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """GitHub's table syntax."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    main()
