"""Verifying passes: what becomes of a bad one, what is skipped, what a recipe may allow."""

import json
from pathlib import Path

import onnx_ir as ir
import pytest
from verified import PASSES, Case, planted, verified
from wrong_rewrites import WRONG

from paceline.passes.base import Pass
from paceline.passes.errors import VerifyError
from paceline.passes.target import Target
from paceline.passes.verify import Verdict, Verified
from paceline.toolchain.graph_file import open_graph

EXACT = Case(weights="fp32")
PLANTS = {wrong.name: wrong for wrong in WRONG}


def with_wrong(name: str) -> tuple[Pass, ...]:
    wrong = PLANTS[name]
    return planted(wrong.pass_name, wrong.plant)


def verdict_of(found: Verified, name: str) -> Verdict:
    return next(verdict for verdict in found.verdicts if verdict.name == name)


def test_a_bad_pass_stops_the_pipeline_with_figures_and_both_graphs(tmp_path: Path) -> None:
    with pytest.raises(VerifyError) as caught:
        verified(EXACT, tmp_path, with_wrong("k and v swapped"), since="merge_qkv")
    for words in ("merge_qkv", "layer.0", "relative error", "before.onnx", "passes.merge_qkv.enabled: false"):
        assert words in str(caught.value)
    assert [one.name for one in caught.value.figures] == ["layer.0", "layer.1", "logits"]
    before, after = (open_graph(tmp_path / "kept" / "merge_qkv" / f"{side}.onnx") for side in ("before", "after"))
    assert len(before.graph) > len(after.graph)
    assert not (tmp_path / "work").exists()


def test_a_bad_pass_that_is_reverted_leaves_a_right_graph_behind(tmp_path: Path) -> None:
    """Merging is left out, and what builds on it finds nothing to do; all else goes on, and is right to the end."""
    found = verified(EXACT, tmp_path, with_wrong("k and v swapped"), since="merge_qkv", policy="revert")
    assert verdict_of(found, "merge_qkv").status == "reverted"
    assert {verdict.status for verdict in found.verdicts if verdict.name != "merge_qkv"} == {"same graph", "passed"}
    assert "merge_qkv" not in {report.name for report in found.reports}
    assert sum(node.op_type == "LinearF32" for node in found.model.graph) == 2 * (3 + 2) + 1, "q, k, v stay apart"


def test_an_essential_pass_cannot_be_reverted(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="no graph can do without it"):
        verified(Case("mistral"), tmp_path, with_wrong("window lost"), since="insert_paged_attention", policy="revert")


def test_a_graph_that_does_not_run_is_the_fault_of_the_pass_that_left_it(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="Non-zero status code") as caught:
        verified(Case(), tmp_path, with_wrong("rotary_dim halved"), since="fuse_rope")
    assert caught.value.pass_name == "fuse_rope"


def test_a_pass_that_hides_its_rewrites_is_run_all_the_same(tmp_path: Path) -> None:
    """Counts are a pass's own word: one that says 0 and edits the graph is found out."""

    def sort_nodes(model: ir.Model, target: Target) -> int:
        PLANTS["scale lost"].plant(model)
        return 0

    passes = tuple(sort_nodes if one.__name__ == "sort_nodes" else one for one in PASSES)
    with pytest.raises(VerifyError, match="pass sort_nodes"):
        verified(EXACT, tmp_path, passes, since="sort_nodes")


def test_a_recipe_may_allow_more_or_less(tmp_path: Path) -> None:
    """bf16 weights under a tolerance for nothing at all; a wrong pass under one for everything."""
    with pytest.raises(VerifyError, match="pass cast_linears"):
        verified(Case(), tmp_path, since="cast_linears", tolerances={"cast_linears": 1e-4})
    passes = with_wrong("scale applied twice")
    found = verified(EXACT, tmp_path, passes, since="simplify_layout", tolerances={"simplify_layout": 100.0})
    assert verdict_of(found, "simplify_layout").tolerance.kind == "float32, as the recipe says"


def test_passes_that_only_rename_or_sort_are_not_run(tmp_path: Path) -> None:
    statuses = {verdict.name: verdict.status for verdict in verified(EXACT, tmp_path).verdicts}
    assert {statuses[name] for name in ("name_values", "sort_nodes", "clear_notes", "name_bindings")} == {"same graph"}
    assert statuses["merge_qkv"] == "passed"
    assert json.dumps(statuses)  # plain words
