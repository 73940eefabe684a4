"""From a recipe to a bundle: the life of a model at compile time, one stage after the other.

A recipe flows in; a bundle folder flows out, or nothing at all (see staging.py). Draft and target go through the same
stages one after the other, so that only one model's tensors are ever open.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..passes.base import PassReport
from ..passes.target import Target
from ..plugins.contract import GraphFacts
from ..runtime.manifest import EngineEntry, PassEntry, RoleEntry
from .build_report import BuildReport, RoleReport
from .checkpoint import Checkpoint, open_checkpoint
from .digest import digest_of_contents
from .errors import CheckpointError, RecipeError
from .export import ExportedModel, export_model, save_graph
from .layer_subset import LayerSubset, parse_layers
from .optimize import check_switched_off, lower, optimize
from .pack import pack_bundle
from .progress import Progress
from .recipe import DraftModel, Recipe
from .staging import staging_folder
from .vocabulary import check_same_vocabulary

__all__ = ["build_bundle", "target_of"]

CACHE_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


def build_bundle(recipe: Recipe, output: Path, progress: Progress) -> BuildReport:
    """Build everything that `recipe` asks for into the folder `output`, replacing a bundle that is there.

    Raises: RecipeError, CheckpointError, ArchitectureError, VocabularyError, PassError; `output` is then as before.
    """
    check_switched_off(_switched_off(recipe))
    begin = time.perf_counter()
    with staging_folder(output) as staging:
        with progress.stage("open the checkpoints"):
            checkpoints = _open_checkpoints(recipe)
        reports = {
            role: _build_role(role, checkpoint, recipe, staging, progress) for role, checkpoint in checkpoints.items()
        }
        with progress.stage("pack the bundle"):
            _check_draft(checkpoints, {role: report.entry.facts for role, report in reports.items()})
            report = BuildReport.measured(output, reports, time.perf_counter() - begin)
            pack_bundle(staging, recipe, checkpoints["target"].tokenizer_files(), report)
    return report


def target_of(recipe: Recipe) -> Target:
    """What the passes need to know of the recipe."""
    return Target(
        name="cpu",
        weights=recipe.quantization.weights,
        cache_dtype=CACHE_DTYPES[recipe.kv_cache.dtype],
        page_size=recipe.kv_cache.page_size,
    )


def _open_checkpoints(recipe: Recipe) -> Mapping[str, Checkpoint]:
    target = open_checkpoint(recipe.target.checkpoint)
    if recipe.draft is None:
        return {"target": target}
    return {"target": target, "draft": _open_draft(recipe.draft, target)}


def _open_draft(draft: DraftModel, target: Checkpoint) -> Checkpoint:
    checkpoint = target if draft.checkpoint == "target" else open_checkpoint(draft.checkpoint)
    if draft.layers is None:
        return checkpoint
    return LayerSubset(checkpoint, parse_layers(draft.layers, checkpoint.config.num_hidden_layers))


def _build_role(role: str, checkpoint: Checkpoint, recipe: Recipe, staging: Path, progress: Progress) -> RoleReport:
    """Export, optimize, save the portable graph, lower, save the engine."""
    target = target_of(recipe)
    with progress.stage(f"{role}: export"):
        exported = export_model(checkpoint, target)
    with progress.stage(f"{role}: optimize"):
        reports = optimize(exported.model, target, switched_off=_switched_off(recipe))
    with progress.stage(f"{role}: write the portable graph"):
        _save(exported, staging / "graph" / f"{role}.onnx")
    with progress.stage(f"{role}: lower to {target.name}, {target.weights}"):
        reports += lower(exported.model, target, switched_off=_switched_off(recipe))
        _save(exported, staging / "engines" / target.name / f"{role}.onnx")
    facts = _bounded(exported.facts, recipe.runtime.max_seq_len, role)
    return RoleReport(_role_entry(role, checkpoint, recipe, facts, reports, target), reports)


def _switched_off(recipe: Recipe) -> tuple[str, ...]:
    return tuple(name for name, options in recipe.passes.items() if not options.enabled)


def _bounded(facts: GraphFacts, max_seq_len: int | None, role: str) -> GraphFacts:
    """The facts with the recipe's longest sequence. Raises: RecipeError when the model does not reach that far."""
    if max_seq_len is None:
        return facts
    if max_seq_len > facts.max_positions:
        raise RecipeError(
            f"runtime.max_seq_len = {max_seq_len}",
            needed=f"at most {facts.max_positions}, the {role}'s longest sequence",
            do="lower it or leave it out",
        )
    return replace(facts, max_positions=max_seq_len)


def _save(exported: ExportedModel, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_graph(exported.model, path)


def _role_entry(
    role: str,
    checkpoint: Checkpoint,
    recipe: Recipe,
    facts: GraphFacts,
    reports: tuple[PassReport, ...],
    target: Target,
) -> RoleEntry:
    draft = recipe.draft
    source = recipe.target.checkpoint if role == "target" or draft is None else draft.checkpoint
    return RoleEntry(
        source=source if role == "target" or draft is None or not draft.layers else f"{source} layers {draft.layers}",
        source_sha256=checkpoint.digest(),
        tokenizer_sha256=digest_of_contents(checkpoint.tokenizer_files()),
        facts=facts,
        passes=tuple(PassEntry(report.name, report.count) for report in reports),
        engines={target.name: EngineEntry(f"engines/{target.name}/{role}.onnx", target.weights)},
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
