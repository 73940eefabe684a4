"""`paceline plan`: what a recipe will take, before anything is built; and what to change where that is too much."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ...plugins.errors import PacelineError
from ..extras import require_extra
from ..overrides import overrides_from
from ..recipe import bytes_from_text, load_recipe
from .console import open_progress, print_json, print_line, print_table

if TYPE_CHECKING:
    from ..plan import Plan
    from ..plan_proposals import Proposal

__all__ = ["plan"]

MIB = 1 << 20
TYPICAL_TOKENS = 1024  # prompt and answer of a chat

# measured on three builds: 4.3 to 5.8 times (docs/plan.md)
UNFORECAST = (
    "not in the build's peak: this recipe verifies its passes (it has a gate, or build.verify), which takes about 4 to "
    "6 times the float32 weights more; 'paceline build --no-verify' leaves it out"
)


def plan(
    recipe: Annotated[Path, typer.Argument(help="Recipe file (YAML).")],
    memory: Annotated[str | None, typer.Option(help="What there is to run in, e.g. 8GiB: does it fit?")] = None,
    weights: Annotated[str | None, typer.Option(help="As for build.")] = None,
    kv_cache_dtype: Annotated[str | None, typer.Option(help="As for build.")] = None,
    kv_cache_memory: Annotated[str | None, typer.Option(help="As for build.")] = None,
    max_batch_size: Annotated[int | None, typer.Option(help="As for build.")] = None,
    max_num_tokens: Annotated[int | None, typer.Option(help="As for build.")] = None,
    max_seq_len: Annotated[int | None, typer.Option(help="As for build.")] = None,
    max_draft_len: Annotated[int | None, typer.Option(help="As for build.")] = None,
    speculative_decoding_mode: Annotated[str | None, typer.Option(help="As for build.")] = None,
    speculative_config: Annotated[str | None, typer.Option(help="As for build.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the forecast as JSON.")] = False,
) -> None:
    """Forecast the memory of building and running RECIPE, and the sizes of its files; nothing is exported."""
    flags: dict[str, object] = {
        "weights": weights,
        "kv_cache_dtype": kv_cache_dtype,
        "kv_cache_memory": kv_cache_memory,
        "max_batch_size": max_batch_size,
        "max_num_tokens": max_num_tokens,
        "max_seq_len": max_seq_len,
        "max_draft_len": max_draft_len,
        "speculative_decoding_mode": speculative_decoding_mode,
    }
    resolved = load_recipe(recipe, overrides_from(flags, speculative_config))
    memory_bytes = None if memory is None else _checked_memory(memory)
    require_extra("build", "paceline plan")
    from ..plan import check_fits, plan_recipe  # torch and transformers load here, not with the command line

    with open_progress(as_json).stage("read shapes"):
        planned = plan_recipe(resolved)
    proposals = planned.proposals(memory_bytes) if memory_bytes is not None else ()
    if as_json:
        notes = [UNFORECAST] if resolved.verifies else []
        print_json({**_as_dict(planned, memory_bytes, proposals), "notes": notes})
    else:
        _print(planned, memory_bytes, proposals)
        if resolved.verifies:
            print_line(UNFORECAST)
    if memory_bytes is not None:
        check_fits(planned, memory_bytes, proposals)


def _checked_memory(text: str) -> int:
    try:
        return bytes_from_text(text)
    except ValueError as error:
        raise PacelineError(f"--memory {text}", needed=str(error), do="correct --memory") from None


def _as_dict(plan: "Plan", memory_bytes: int | None, proposals: "tuple[Proposal, ...]") -> dict[str, object]:
    run = plan.run
    return {
        "build": {"peak_bytes": plan.build_peak_bytes},
        "files": plan.files,
        "run": {
            "total_bytes": run.total_bytes,
            "weights_bytes": dict(run.weights_bytes),
            "cache_bytes": run.cache_bytes,
            "logits_bytes": run.logits_bytes,
            "arena_bytes": run.arena_bytes,
            "process_bytes": run.process_bytes,
            "page_bytes": dict(run.page_bytes),
            "num_pages": run.num_pages,
            "max_seq_len": run.longest_tokens,
            "num_longest_requests": run.num_requests(run.longest_tokens),
            "num_typical_requests": run.num_requests(TYPICAL_TOKENS),
        },
        "memory_bytes": memory_bytes,
        "fits": memory_bytes is None or run.total_bytes <= memory_bytes,
        "proposals": [
            {"flags": list(one.flags), "loss": one.loss.name.lower(), "total_bytes": one.run.total_bytes}
            for one in proposals
        ],
    }


def _print(plan: "Plan", memory_bytes: int | None, proposals: "tuple[Proposal, ...]") -> None:
    run = plan.run
    print_table(_memory_table(plan))
    print_table(_file_table(plan))
    print_line(
        f"{run.num_pages} pages of {run.page_size} tokens: {run.num_requests(run.longest_tokens)} requests of "
        f"{run.longest_tokens} tokens (max_seq_len), {run.num_requests(TYPICAL_TOKENS)} of {TYPICAL_TOKENS}"
    )
    if memory_bytes is None:
        return
    for what, size in (("the build", plan.build_peak_bytes), ("running it", run.total_bytes)):
        verdict = "fits" if size <= memory_bytes else "does not fit"
        print_line(f"{what}: {size / MIB:,.0f} MiB {verdict} into {memory_bytes / MIB:,.0f} MiB")
    if proposals:
        print_table(_proposal_table(proposals))


def _memory_table(plan: "Plan") -> Table:
    run = plan.run
    table = Table("what", "MiB", "from", title="memory", title_justify="left")
    for role, size in run.weights_bytes.items():
        table.add_row(f"weights, {role}", _mib(size), "mapped from the engine's file; embedding and head included")
    for role, size in run.page_bytes.items():
        table.add_row(f"cache, {role}", _mib(size * run.num_pages), f"{run.num_pages} pages of {size / 1024:.0f} KiB")
    table.add_row("logits", _mib(run.logits_bytes), "requests x (1 + draft tokens) x vocabulary")
    table.add_row("workspace", _mib(run.arena_bytes), "tokens of the largest step x what lies between two ops")
    table.add_row("process", _mib(run.process_bytes), "Python, onnxruntime, kernels, tokenizer", end_section=True)
    table.add_row("running it", _mib(run.total_bytes), "", end_section=True)
    table.add_row("building it, peak", _mib(plan.build_peak_bytes), "on the host that builds")
    return table


def _file_table(plan: "Plan") -> Table:
    table = Table("file", "bytes", title="bundle", title_justify="left")
    for name, size in plan.files.items():
        table.add_row(name, f"{size:,}")
    table.add_section()
    table.add_row("all", f"{sum(plan.files.values()):,}")
    return table


def _proposal_table(proposals: "tuple[Proposal, ...]") -> Table:
    table = Table("build with", "gives up", "MiB", f"requests of {TYPICAL_TOKENS}", title="what fits, least loss first")
    for one in proposals:
        requests = one.run.num_requests(TYPICAL_TOKENS)
        table.add_row(" ".join(one.flags), one.loss.name.lower(), _mib(one.run.total_bytes), str(requests))
    return table


def _mib(size: int) -> str:
    return f"{size / MIB:,.1f}"
