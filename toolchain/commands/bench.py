"""`paceline bench`: what a bundle does on this machine, plain and with each drafting method."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ...plugins.errors import PacelineError
from ...runtime.request import DraftMethod
from ..extras import require_extra
from ..prompts import PROMPTS
from .console import open_progress, print_json, print_table

if TYPE_CHECKING:
    from ..bench_plan import BenchPlan, BenchRow

__all__ = ["bench", "measure_bundle", "table_of"]


def bench(
    bundle: Annotated[Path, typer.Argument(help="Bundle folder.")],
    streams: Annotated[str, typer.Option(help="Requests in flight, a list like 1,8.")] = "1,8",
    kinds: Annotated[str, typer.Option(help="Kinds of text, a list out of chat,code,copying.")] = "chat,code,copying",
    speculation: Annotated[str, typer.Option(help="Methods to compare with plain decoding.")] = "ngram",
    max_tokens: Annotated[int, typer.Option(help="Tokens that every request writes.")] = 128,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    num_draft_tokens: Annotated[int, typer.Option(help="Draft tokens per request and step.")] = 4,
    repetitions: Annotated[int, typer.Option(help="The median of so many is shown.")] = 3,
    threads: Annotated[int | None, typer.Option(help="Default: all usable cores.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Measure BUNDLE: tokens per second, time to first token, time per token, acceptance; same tokens or not."""
    require_extra("cpu", "running cpu engines")
    from ..bench_plan import BenchPlan

    plan = BenchPlan(
        kinds=_checked_kinds(kinds),
        streams=_numbers("--streams", streams),
        methods=(DraftMethod.NONE, *_methods(speculation)),
        max_tokens=max_tokens,
        temperature=temperature,
        num_draft_tokens=num_draft_tokens,
        repetitions=repetitions,
    )
    rows = measure_bundle(bundle, plan, threads, as_json)
    if as_json:
        print_json({"rows": [row.as_dict() for row in rows]})
    else:
        print_table(table_of(rows))


def measure_bundle(bundle: Path, plan: "BenchPlan", threads: int | None, quiet: bool) -> "list[BenchRow]":
    """Open `bundle` with every engine that `plan` needs, run the plan, close."""
    from ...runtime.open import Settings, open_runtime
    from ..bench_plan import run_plan

    needs_draft = any(method in (DraftMethod.DRAFT, DraftMethod.AUTO) for method in plan.methods)
    settings = Settings(
        max_num_seqs=max(plan.streams),
        threads=threads,
        drafting=DraftMethod.AUTO if needs_draft else DraftMethod.NONE,
        num_draft_tokens=plan.num_draft_tokens,
    )
    progress = open_progress(quiet)
    opened = open_runtime(bundle, settings)
    with opened.runtime, progress.stage("measure"):
        return run_plan(opened, plan, lambda cell: None)


def table_of(rows: "list[BenchRow]") -> Table:
    """The rows for a person."""
    table = Table(
        "text",
        "streams",
        "method",
        "tok/s",
        "x plain",
        "TTFT ms",
        "TPOT P50",
        "P95",
        "accepted",
        "tokens/turn",
        "identical",
    )
    for row in rows:
        table.add_row(
            row.kind,
            str(row.streams),
            row.method,
            f"{row.tokens_per_s:.1f}",
            f"{row.speedup:.2f}",
            f"{row.ttft_ms:.0f}",
            f"{row.tpot_p50_ms:.1f}",
            f"{row.tpot_p95_ms:.1f}",
            "-" if row.acceptance is None else f"{100 * row.acceptance:.0f} %",
            f"{row.tokens_per_turn:.2f}",
            "yes" if row.is_identical else "[bold red]NO[/]",
            end_section=row.method == rows[-1].method,
        )
    return table


def _numbers(flag: str, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise PacelineError(f"{flag} {text}", needed="numbers of at least 1, like 1,8", do=f"correct {flag}")
    return tuple(int(part) for part in parts)


def _checked_kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(part.strip() for part in text.split(","))
    unknown = [kind for kind in kinds if kind not in PROMPTS]
    if unknown:
        raise PacelineError(
            f"--kinds {', '.join(unknown)}", needed=f"some of {', '.join(PROMPTS)}", do="correct --kinds"
        )
    return kinds


def _methods(text: str) -> tuple[DraftMethod, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip() not in ("", "none")]
    unknown = [part for part in parts if part not in list(DraftMethod)]
    if unknown:
        raise PacelineError(
            f"--speculation {', '.join(unknown)}",
            needed=f"some of {', '.join(DraftMethod)}",
            do="correct --speculation",
        )
    return tuple(DraftMethod(part) for part in parts)
