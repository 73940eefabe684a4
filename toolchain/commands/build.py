"""`paceline build`: from a recipe to a bundle."""

from pathlib import Path
from typing import Annotated

import typer

from ..extras import require_extra
from ..overrides import overrides_from
from ..recipe import load_recipe
from .console import open_progress, print_json, print_line

__all__ = ["build"]


def build(
    recipe: Annotated[Path, typer.Argument(help="Recipe file (YAML).")],
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", "-o", help="Bundle folder; default bundles/<recipe name>.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Format of the linear layers: fp32, bf16, fp16, fp8, int8, int8_rows16, ...")
    ] = None,
    kv_cache_dtype: Annotated[str | None, typer.Option(help="Format of keys and values: fp32, bf16, fp8.")] = None,
    kv_cache_memory: Annotated[str | None, typer.Option(help="Page pools of all engines, e.g. 512MiB.")] = None,
    max_batch_size: Annotated[int | None, typer.Option(help="Most requests in one step.")] = None,
    max_num_tokens: Annotated[int | None, typer.Option(help="Most tokens in one step.")] = None,
    max_seq_len: Annotated[int | None, typer.Option(help="Longest prompt + output, in tokens.")] = None,
    max_draft_len: Annotated[int | None, typer.Option(help="Draft tokens per request and step.")] = None,
    speculative_decoding_mode: Annotated[str | None, typer.Option(help="none, ngram, draft, auto.")] = None,
    speculative_config: Annotated[str | None, typer.Option(help="The same as JSON, as vLLM takes it.")] = None,
    verify: Annotated[
        bool | None,
        typer.Option("--verify/--no-verify", help="Check the numbers behind each pass; default: with a gate."),
    ] = None,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="Build nothing; find the first wrong pass in few numeric runs.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the recipe, print it whole, build nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the build report as JSON.")] = False,
) -> None:
    """Compile the target and draft of RECIPE into one bundle."""
    flags: dict[str, object] = {
        "verify": verify,
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
    if dry_run:
        print_json(resolved.model_dump(mode="json"))
        return
    require_extra("build", "paceline build")
    from ..build import bisect_recipe, build_bundle  # torch and transformers load here, not with the command line

    if bisect:
        bisect_recipe(resolved, open_progress(as_json))
        print_line("no pass changes the numbers by more than it may")
        return
    report = build_bundle(resolved, output_dir or Path("bundles") / recipe.stem, open_progress(as_json))
    if as_json:
        print_json(report.as_dict())
    else:
        print_line(report.summary())
