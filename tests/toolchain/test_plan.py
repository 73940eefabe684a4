"""plan, as a library and as a verb: forecasts in seconds, a verdict, exit codes, and early refusals."""

import json
import sys
from pathlib import Path

import pytest
from tiny_bundles import tiny_recipe

from paceline.toolchain.cli import main
from paceline.toolchain.errors import RecipeError
from paceline.toolchain.plan import plan_recipe
from paceline.toolchain.recipe import load_recipe

MIB = 1 << 20


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """`paceline plan`; returns (exit code, stdout, stderr)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["paceline", "plan", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_recipe(tmp_path_factory.mktemp("tiny"))


def test_a_plan_exports_nothing_and_reads_no_weight(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*arguments: object) -> None:
        raise AssertionError("a weight was read")

    monkeypatch.setattr("paceline.toolchain.checkpoint_folder.FolderCheckpoint.read", read)
    monkeypatch.setattr("paceline.toolchain.checkpoint_folder.FolderCheckpoint.read_rows", read)
    monkeypatch.setattr("torch.export.export", read)
    planned = plan_recipe(load_recipe(recipe))
    assert list(planned.shapes) == ["target", "draft"]
    assert planned.recipe.runtime.max_seq_len == 512, "the model's, where the recipe leaves it open"


def test_a_sequence_that_the_model_does_not_reach_is_refused_as_in_a_build(recipe: Path) -> None:
    with pytest.raises(RecipeError, match="at most 512"):
        plan_recipe(load_recipe(recipe, {"runtime.max_seq_len": 513}))


def test_json_says_every_term(plan, recipe: Path) -> None:
    code, out, _ = plan(recipe, "--kv-cache-memory", "1MiB", "--json")
    said = json.loads(out)
    run = said["run"]
    assert code == 0
    assert said["fits"]
    terms = ("cache_bytes", "logits_bytes", "arena_bytes", "process_bytes")
    assert run["total_bytes"] == sum(run["weights_bytes"].values()) + sum(run[term] for term in terms)
    assert run["num_pages"] == MIB // sum(run["page_bytes"].values())
    assert run["num_longest_requests"] == run["num_pages"] // 32
    assert set(said["files"]) >= {"engines/cpu/target.onnx.data", "graph/draft.onnx", "tokenizer.json", "manifest.json"}


def test_flags_are_those_of_build_and_change_the_forecast(plan, recipe: Path) -> None:
    def total(*flags: object) -> int:
        return int(json.loads(plan(recipe, *flags, "--json")[1])["run"]["total_bytes"])

    assert total("--kv-cache-memory", "128MiB") < total()
    assert total("--weights", "fp32") > total("--weights", "bf16")
    assert total("--max-batch-size", 4) < total("--max-batch-size", 32)
    assert total("--speculative-decoding-mode", "draft") > total()


def test_a_person_sees_what_fits(plan, recipe: Path) -> None:
    code, out, _ = plan(recipe, "--memory", "8GiB")
    assert code == 0
    assert "running it:" in out
    assert "does not fit" not in out
    assert "requests of 512 tokens (max_seq_len)" in out


def test_what_does_not_fit_ends_with_2_and_proposals_that_do(plan, recipe: Path) -> None:
    code, out, err = plan(recipe, "--memory", "200MiB", "--json")
    said = json.loads(out)
    assert code == 2
    assert not said["fits"]
    assert said["proposals"][0]["flags"][0] in err
    for one in said["proposals"]:
        assert one["total_bytes"] <= 200 * MIB
    words = [word for flag in said["proposals"][0]["flags"] for word in flag.split()]
    code, out, _ = plan(recipe, "--memory", "200MiB", "--json", *words)
    assert code == 0
    assert json.loads(out)["run"]["total_bytes"] == said["proposals"][0]["total_bytes"]


def test_impossible_memory_is_said_in_three_parts(plan, recipe: Path) -> None:
    for memory, word in (("10MiB", "at least"), ("plenty", "--memory plenty")):
        code, _, err = plan(recipe, "--memory", memory)
        assert code == 2
        for part in ("found:", "needed:", "do:", word):
            assert part in err
