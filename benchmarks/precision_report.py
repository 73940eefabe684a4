"""docs/precision.md out of the figures of precision.py: the hand-written part, then tables by format.

`total` joins kinds by their tokens: divergence and agreement are means, perplexity the mean of losses.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from machine import describe_machine

__all__ = ["write_report"]

PROSE = Path(__file__).resolve().parent / "precision_prose.md"
PAIRS = (  # ours, modelopt's
    ("fp8", "FP8_DEFAULT_CFG"),
    ("int8, not smoothed", "INT8_DEFAULT_CFG"),
    ("int8", "INT8_SMOOTHQUANT_CFG"),
    ("int4_weight_only, 128", "INT4_AWQ_CFG"),
)
Kinds = Mapping[str, Mapping[str, float]]


def write_report(figures: Mapping[str, Any], path: Path) -> None:
    """Write the page."""
    parts = [
        PROSE.read_text(encoding="utf-8").rstrip(),
        "## Measured",
        _machine_line(),
        _text_line(figures["ours"]),
        _ours_table(figures["ours"]),
        "### Beside nvidia-modelopt",
        _pairs_table(figures["ours"], figures["modelopt"]),
        "### By kind of text (KL of the engine)",
        _kinds_table(figures["ours"]),
    ]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _machine_line() -> str:
    machine = describe_machine()
    return f"Written by `make precision`. {machine.date}, {machine.processor}, Python {machine.python}."


def total(kinds: Kinds) -> dict[str, float]:
    """One row for all kinds together."""
    tokens = sum(one["tokens"] for one in kinds.values())

    def mean(value: str) -> float:
        return sum(one[value] * one["tokens"] for one in kinds.values()) / tokens

    logs = {
        key: sum(math.log(one[key]) * one["tokens"] for one in kinds.values()) / tokens
        for key in ("perplexity", "reference_perplexity")
    }
    increase = math.exp(logs["perplexity"] - logs["reference_perplexity"]) - 1
    return {"tokens": tokens, "ppl_increase": increase, "kl": mean("kl"), "top1": mean("top1")}


def _text_line(ours: Mapping[str, Any]) -> str:
    kinds = next(iter(ours.values()))["engine"]
    counts = ", ".join(f"{kind} {int(one['tokens'])}" for kind, one in kinds.items())
    return f"Held-out tokens: {counts}. Figures are against float32 on the same windows of at most 256 tokens."


def _ours_table(ours: Mapping[str, Any]) -> str:
    head = (
        "| format | perplexity | KL | top-1 | portable: KL | weights, engine | weights, portable |\n"
        "|---|---|---|---|---|---|---|"
    )
    rows = []
    for name, one in ours.items():
        engine, portable = total(one["engine"]), total(one["portable"])
        sizes = [f"{one[key] / 1e6:.0f} MB" for key in ("engine_bytes", "portable_bytes")]
        rows.append(f"| {name} | {_figures(engine)} | {portable['kl']:.5f} | {sizes[0]} | {sizes[1]} |")
    return "\n".join([head, *rows])


def _figures(one: Mapping[str, float]) -> str:
    return f"{one['ppl_increase']:+.2%} | {one['kl']:.5f} | {one['top1']:.2%}"


def _pairs_table(ours: Mapping[str, Any], peer: Mapping[str, Any]) -> str:
    if "error" in peer:
        return f"modelopt did not run: {peer['error']}."
    head = (
        f"nvidia-modelopt {peer['version']}, fake quantisation in torch, calibrated on the same text; its head stays\n"
        "in float32, ours in bf16.\n\n"
        "| format | ours: perplexity, KL, top-1 | modelopt | | ours no worse in KL |\n|---|---|---|---|---|"
    )
    rows = []
    for name, theirs in PAIRS:
        mine, found = total(ours[name]["engine"]), peer.get(theirs, {"error": "missing"})
        if "error" in found:
            rows.append(f"| {name} | {_short(mine)} | {theirs} | {found['error']} | |")
            continue
        other = total(found)
        verdict = "yes" if mine["kl"] <= other["kl"] else f"**no**, {mine['kl'] / other['kl']:.2f} x"
        rows.append(f"| {name} | {_short(mine)} | {theirs} | {_short(other)} | {verdict} |")
    return "\n".join([head, *rows])


def _short(one: Mapping[str, float]) -> str:
    return f"{one['ppl_increase']:+.2%}, {one['kl']:.5f}, {one['top1']:.2%}"


def _kinds_table(ours: Mapping[str, Any]) -> str:
    kinds = list(next(iter(ours.values()))["engine"])
    lines = ["| format | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 1) + "|"]
    lines += [
        f"| {name} | " + " | ".join(f"{one['engine'][kind]['kl']:.5f}" for kind in kinds) + " |"
        for name, one in ours.items()
    ]
    return "\n".join(lines)
