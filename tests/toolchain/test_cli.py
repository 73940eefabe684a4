"""The command line as a user meets it: results on stdout, errors in three parts, exit code 2, no stack trace."""

import json
import sys
from pathlib import Path

import pytest
from tiny_bundles import tiny_recipe

from paceline.toolchain.cli import VERBS, main


@pytest.fixture(scope="module")
def bundle(tiny_whole: Path) -> Path:
    return tiny_whole


@pytest.fixture
def paceline(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Call the command line; returns (exit code, stdout, stderr)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["paceline", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return call


def refused(result: tuple[int, str, str], *words: str) -> None:
    """Exit code 2, three parts, and every one of `words`."""
    code, _, err = result
    assert code == 2, err
    assert "Traceback" not in err
    for word in ("found:", "needed:", "do:", *words):
        assert word in err, err


def test_every_verb_explains_itself(paceline) -> None:
    for verb, _ in VERBS:
        code, out, _ = paceline(verb, "--help")
        assert code == 0
        assert "Usage" in out


def test_run_answers_all_prompts_in_json(paceline, bundle: Path) -> None:
    code, out, _ = paceline("run", bundle, "-p", "one", "-p", "two", "--max-tokens", 9, "--ignore-eos", "--json")
    requests = json.loads(out)["requests"]
    assert code == 0
    assert [one["prompt"] for one in requests] == ["one", "two"]
    for one in requests:
        assert len(one["token_ids"]) == 9
        assert one["finish_reason"] == "length"
        assert one["usage"]["completion_tokens"] == 9


def test_run_takes_prompts_from_a_file(paceline, bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("first\n\nsecond\n")
    _, out, _ = paceline("run", bundle, "--prompts", file, "--max-tokens", 2, "--json")
    assert [one["prompt"] for one in json.loads(out)["requests"]] == ["first", "second"]


@pytest.mark.parametrize("method", ["ngram", "draft", "auto"])
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_speculation_changes_no_token(paceline, bundle: Path, method: str, temperature: float) -> None:
    common = (
        "run",
        bundle,
        "-p",
        "abcabcabcabc",
        "--max-tokens",
        60,
        "--seed",
        3,
        "--temperature",
        temperature,
        "--json",
    )
    alone, drafted = (
        json.loads(paceline(*common, "--speculation", name)[1])["requests"][0]["token_ids"] for name in ("none", method)
    )
    assert drafted == alone


def test_raw_prompts_leave_the_template_out(paceline, bundle: Path) -> None:
    lengths = [
        json.loads(paceline("run", bundle, "-p", "abc", "--max-tokens", 1, "--json", *flags)[1])["requests"][0]["usage"]
        for flags in ((), ("--raw",))
    ]
    assert lengths[1]["prompt_tokens"] == 3
    assert lengths[0]["prompt_tokens"] > 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-p", ""), ("empty prompt", "after -p")),
        ((), ("no prompt",)),
        (("-p", "x", "--temperature", -1), ("temperature = -1.0",)),
        (("-p", "x", "--top-p", 0), ("top_p",)),
        (("-p", "x", "--min-p", 2), ("min_p",)),
        (("-p", "x", "--seed", -4), ("seed",)),
        (("-p", "x", "--max-tokens", 0), ("max_tokens",)),
        (("-p", "x" * 600), ("at most 512 tokens",)),
        (("-p", "x", "--max-tokens", 100000), ("at most 512 tokens",)),
        (("-p", "x", "--logprobs", 500), ("logprobs",)),
        (("-p", "x", "--stop", ""), ("stop",)),
        (("-p", "x", "--num-draft-tokens", -1), ("num_draft_tokens",)),
        (("-p", "x", "--max-num-seqs", 0), ("max_num_seqs",)),
        (("-p", "x", "--threads", 0), ("threads",)),
        (("--prompts", "no-such-file"), ("no-such-file",)),
    ],
)
def test_run_refuses_what_it_cannot_do(paceline, bundle: Path, arguments: tuple, words: tuple[str, ...]) -> None:
    refused(paceline("run", bundle, *arguments), *words)


def test_inspect_checks_and_lists(paceline, bundle: Path) -> None:
    code, out, _ = paceline("inspect", bundle, "--json")
    manifest = json.loads(out)
    assert code == 0
    assert manifest["name"] == "tiny"
    assert set(manifest["roles"]) == {"target", "draft"}
    code, out, _ = paceline("inspect", bundle)
    assert "insert_paged_attention" in out


def test_a_folder_that_is_no_bundle_is_refused(paceline, tmp_path: Path) -> None:
    refused(paceline("inspect", tmp_path), "manifest.json")
    refused(paceline("run", tmp_path / "nothing", "-p", "x"), "is missing")


def test_bench_prints_rows(paceline, bundle: Path) -> None:
    code, out, _ = paceline(
        "bench", bundle, "--streams", "1,2", "--kinds", "copying", "--max-tokens", 8, "--repetitions", 1,
        "--speculation", "ngram,draft", "--json",
    )  # fmt: skip
    rows = json.loads(out)["rows"]
    assert code == 0
    assert [(row["streams"], row["method"]) for row in rows] == [
        (streams, method) for streams in (1, 2) for method in ("none", "ngram", "draft")
    ]
    assert all(row["is_identical"] and row["tokens_per_s"] > 0 for row in rows)


@pytest.mark.parametrize("flag", [("--streams", "0"), ("--kinds", "poetry"), ("--speculation", "magic")])
def test_bench_refuses_unknown_words(paceline, bundle: Path, flag: tuple[str, str]) -> None:
    refused(paceline("bench", bundle, *flag), *flag)


def test_build_dry_run_prints_the_recipe_and_builds_nothing(paceline, tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path)
    code, out, _ = paceline(
        "build-engine", recipe, "--max-batch-size", 3, "--weights", "int8", "--dry-run", "-o", tmp_path / "b"
    )
    assert code == 0
    assert json.loads(out)["runtime"]["max_num_seqs"] == 3
    assert json.loads(out)["quantization"]["weights"] == "int8"
    assert not (tmp_path / "b").exists()


def test_build_takes_the_speculative_config_of_vllm(paceline, tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path)
    config = '{"method": "ngram", "num_speculative_tokens": 6}'
    _, out, _ = paceline("build", recipe, "--speculative-config", config, "--dry-run")
    assert (
        json.loads(out)["speculation"] | {"method": "ngram", "num_speculative_tokens": 6}
        == json.loads(out)["speculation"]
    )
    refused(paceline("build", recipe, "--speculative-config", '{"k": 3}', "--dry-run"), "k")


@pytest.mark.parametrize("flag", [("--weights", "int3"), ("--kv-cache-dtype", "fp8"), ("--max-draft-len", "99")])
def test_build_refuses_values_that_it_cannot_honour(paceline, tmp_path: Path, flag: tuple[str, str]) -> None:
    refused(paceline("build", tiny_recipe(tmp_path), *flag, "--dry-run"))


def test_export_and_optimize_alone(paceline, tmp_path: Path) -> None:
    tiny_recipe(tmp_path)
    code, out, _ = paceline("export", tmp_path / "model", "-o", tmp_path / "raw.onnx", "--json")
    assert code == 0
    assert json.loads(out)["vocab_size"] == 272
    code, out, _ = paceline("optimize", tmp_path / "raw.onnx", "-o", tmp_path / "good.onnx", "--json")
    counts = {one["name"]: one["count"] for one in json.loads(out)["passes"]}
    assert code == 0
    assert counts["insert_paged_attention"] == 3
    assert counts["merge_qkv"] == 3
    refused(paceline("optimize", tmp_path / "model" / "config.json", "-o", tmp_path / "x.onnx"))


def test_doctor_finds_this_machine_fit(paceline) -> None:
    code, out, _ = paceline("doctor", "--json")
    findings = {one["what"]: one for one in json.loads(out)["findings"]}
    assert code == 0
    assert all(one["ok"] for one in findings.values()), findings
    assert findings["native kernels"]["found"].startswith("instruction set")
