"""From a recipe to a bundle: the life of a model at compile time, one stage after the other.

A recipe flows in; a bundle folder flows out, or nothing at all (see staging.py). Draft and target go through the same
stages one after the other, so that only one model's tensors are ever open.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ..passes.number_formats import HEADS
from ..passes.target import Target
from ..plugins.contract import GraphFacts
from ..runtime.manifest import EngineEntry, PassEntry, RoleEntry
from .build_report import BuildReport, RoleReport
from .build_role import RoleJob, RoleResult, build_role
from .checkpoint import Checkpoint, open_checkpoint
from .digest import digest_of_contents
from .errors import CheckpointError, GateError, RecipeError
from .gate import check_result
from .layer_subset import LayerSubset, parse_layers
from .optimize import check_switched_off
from .pack import pack_bundle
from .progress import Progress
from .recipe import CACHE_DTYPES, DraftModel, Recipe
from .staging import staging_folder
from .target_formats import check_target_formats
from .verify_role import Checks
from .vocabulary import check_same_vocabulary

__all__ = ["bisect_recipe", "build_bundle", "check_longest", "open_checkpoints", "target_of"]


def build_bundle(recipe: Recipe, output: Path, progress: Progress) -> BuildReport:
    """Build everything that `recipe` asks for into the folder `output`, replacing a bundle that is there.

    Raises: RecipeError, CheckpointError, ArchitectureError, VocabularyError, PassError, PrecisionError, GateError;
    `output` is then as before.
    """
    check_switched_off(_switched_off(recipe))
    for kind in recipe.build.targets:
        check_target_formats(kind, None, _formats_asked(recipe))
    begin = time.perf_counter()
    with staging_folder(output) as staging:
        with progress.stage("open the checkpoints"):
            checkpoints = open_checkpoints(recipe)
        reports = {
            role: _build_role(role, checkpoint, recipe, staging, _failed(output), progress)
            for role, checkpoint in checkpoints.items()
        }
        with progress.stage("pack the bundle"):
            _check_draft(checkpoints, {role: report.entry.facts for role, report in reports.items()})
            report = BuildReport.measured(output, reports, time.perf_counter() - begin)
            _check_gate(report, output)
            pack_bundle(staging, recipe, checkpoints["target"].tokenizer_files(), report)
    return report


def target_of(recipe: Recipe) -> Target:
    """What the passes need to know of the recipe."""
    options = recipe.quantization
    return Target(
        name="cpu",
        weights=options.weights,
        head=options.head or HEADS.get(options.weights),
        keep=tuple(options.keep.items()),
        embedding=options.embedding,
        block_size=options.block_size,
        cache_dtype=CACHE_DTYPES[recipe.kv_cache.dtype],
        page_size=recipe.kv_cache.page_size,
    )


def open_checkpoints(recipe: Recipe) -> Mapping[str, Checkpoint]:
    """The checkpoint of each role. Raises: CheckpointError, ArchitectureError, RecipeError."""
    target = open_checkpoint(recipe.target.checkpoint)
    if recipe.draft is None:
        return {"target": target}
    return {"target": target, "draft": _open_draft(recipe.draft, target)}


def _open_draft(draft: DraftModel, target: Checkpoint) -> Checkpoint:
    checkpoint = target if draft.checkpoint == "target" else open_checkpoint(draft.checkpoint)
    if draft.layers is None:
        return checkpoint
    return LayerSubset(checkpoint, parse_layers(draft.layers, checkpoint.config.num_hidden_layers))


def bisect_recipe(recipe: Recipe, progress: Progress) -> None:
    """Go through the stages of every role, and write nothing. Raises: VerifyError naming the first wrong pass."""
    check_switched_off(_switched_off(recipe))
    with TemporaryDirectory(prefix="paceline-bisect-") as staging:
        for role, checkpoint in open_checkpoints(recipe).items():
            _build_role(role, checkpoint, recipe, Path(staging), Path("bisected"), progress, "bisect")


def _failed(output: Path) -> Path:
    """The folder beside `output` for what outlives a build that failed."""
    return output.with_name(f"{output.name}.failed")


def _build_role(
    role: str,
    checkpoint: Checkpoint,
    recipe: Recipe,
    staging: Path,
    kept: Path,
    progress: Progress,
    checks: Checks | None = None,
) -> RoleReport:
    """The role's graphs, and what the manifest and the reports say of it."""
    checks = checks or ("verify" if recipe.verifies else "none")
    with TemporaryDirectory(prefix=".work-", dir=staging) as work:
        job = RoleJob(role, checkpoint, recipe, target_of(recipe), staging, Path(work), progress, kept / role, checks)
        result = build_role(job)
    facts = _bounded(result.facts, recipe.runtime.max_seq_len, role)
    return RoleReport(_role_entry(role, checkpoint, recipe, facts, result), result)


def _check_gate(report: BuildReport, output: Path) -> None:
    """Raise `GateError` if the gate does not hold, with its figures in a file that outlives the build."""
    result = report.roles["target"].result.gate
    if result is None:
        return
    try:
        check_result(result)
    except GateError as error:
        path = _failed(output) / "accuracy.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(report.accuracy_json())
        raise GateError(error.found, needed=error.needed, do=f"{error.do}; all figures are in {path}") from None


def _formats_asked(recipe: Recipe) -> set[str]:
    options = recipe.quantization
    return {options.weights, *([options.head] if options.head else []), *options.keep.values()}


def _switched_off(recipe: Recipe) -> tuple[str, ...]:
    return tuple(name for name, options in recipe.passes.items() if not options.enabled)


def _bounded(facts: GraphFacts, max_seq_len: int | None, role: str) -> GraphFacts:
    """The facts with the recipe's longest sequence. Raises: RecipeError when the model does not reach that far."""
    check_longest(max_seq_len, facts.max_positions, role)
    return facts if max_seq_len is None else replace(facts, max_positions=max_seq_len)


def check_longest(max_seq_len: int | None, max_positions: int, role: str) -> None:
    """Raise RecipeError when sequences are to be longer than the role's model reaches."""
    if max_seq_len is not None and max_seq_len > max_positions:
        raise RecipeError(
            f"runtime.max_seq_len = {max_seq_len}",
            needed=f"at most {max_positions}, the {role}'s longest sequence",
            do="lower it or leave it out",
        )


def _role_entry(
    role: str,
    checkpoint: Checkpoint,
    recipe: Recipe,
    facts: GraphFacts,
    result: RoleResult,
) -> RoleEntry:
    draft = recipe.draft
    source = recipe.target.checkpoint if role == "target" or draft is None else draft.checkpoint
    return RoleEntry(
        source=source if role == "target" or draft is None or not draft.layers else f"{source} layers {draft.layers}",
        source_sha256=checkpoint.digest(),
        tokenizer_sha256=digest_of_contents(checkpoint.tokenizer_files()),
        facts=facts,
        passes=tuple(PassEntry(report.name, report.count) for report in result.passes),
        engines={result.target.name: EngineEntry(f"engines/{result.target.name}/{role}.onnx", result.target.weights)},
    )


def _check_draft(checkpoints: Mapping[str, Checkpoint], facts: Mapping[str, GraphFacts]) -> None:
    """Whether the draft can guess for the target at all."""
    if "draft" not in checkpoints:
        return
    check_same_vocabulary(
        checkpoints["target"].tokenizer_files(),
        checkpoints["draft"].tokenizer_files(),
        facts["target"].vocab_size,
        facts["draft"].vocab_size,
    )
    if facts["draft"].max_positions < facts["target"].max_positions:
        raise CheckpointError(
            f"the draft sees {facts['draft'].max_positions} positions, the target {facts['target'].max_positions}",
            needed="a draft that reaches as far as the target",
            do="lower runtime.max_seq_len in the recipe, or choose another draft",
        )
