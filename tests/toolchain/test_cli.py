"""The command line as a user meets it: results on stdout, errors in three parts, exit code 2, no stack trace."""

import hashlib
import json
import sys
from pathlib import Path

import pytest
from manifest_edits import edit_manifest
from signing_keys import write_key_pair
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
        (("-p", "x", "--kv-cache-memory", "lots"), ("--kv-cache-memory lots", "512MiB")),
        (("-p", "x", "--kv-cache-memory", "1KiB"), ("1024 bytes of cache", "one page")),
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


def test_inspect_says_what_lies_beyond_the_manifest(paceline, bundle: Path) -> None:
    found = json.loads(paceline("inspect", bundle, "--json")[1])
    assert found["signature"] == "unsigned"
    assert found["digest"] == hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    assert found["memory"]["cache_bytes"] > found["memory"]["weights_bytes"] > 0
    assert found["extra_files"] == []


def test_sign_and_verify(paceline, tiny_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = write_key_pair(tmp_path, "key", password="secret")
    code, out, _ = paceline("verify", tiny_copy)
    assert (code, "signature: unsigned" in out) == (0, True)
    refused(paceline("sign", tiny_copy, "--private-key", private), "key.pem")
    monkeypatch.setenv("PACELINE_KEY_PASSWORD", "secret")
    assert paceline("sign", tiny_copy, "--private-key", private)[0] == 0
    assert "signed, not checked" in paceline("verify", tiny_copy)[1]
    code, out, _ = paceline("verify", tiny_copy, "--public-key", public, "--json")
    assert (code, json.loads(out)["good"]) == (0, True)
    (tiny_copy / "tokenizer.json").write_text("{}")
    code, out, _ = paceline("verify", tiny_copy, "--public-key", public, "--json")
    assert code == 2
    assert [one["name"] for one in json.loads(out)["problems"]] == ["tokenizer.json"]
    code, out, _ = paceline("verify", tiny_copy)
    assert code == 2
    assert "tokenizer.json" in out


@pytest.mark.parametrize(
    "flags", [("--identity", "me"), ("--public-key", "k", "--identity", "me"), ("--trust-config", "t")]
)
def test_verify_refuses_half_an_identity(paceline, bundle: Path, flags: tuple[str, ...]) -> None:
    refused(paceline("verify", bundle, *flags), "--identity-provider")


def test_diff_says_what_differs_by_its_exit_code_too(paceline, bundle: Path, tiny_copy: Path, tmp_path: Path) -> None:
    code, out, _ = paceline("diff", bundle, tiny_copy, "--json")
    assert (code, json.loads(out)["equal"]) == (0, True)
    assert paceline("diff", bundle, tiny_copy)[0] == 0
    edit_manifest(tiny_copy, lambda manifest: manifest["recipe"]["runtime"].update(max_num_seqs=7))
    code, out, _ = paceline("diff", bundle, tiny_copy, "--json")
    assert code == 1
    assert json.loads(out)["sections"]["recipe"] == [
        {"where": "runtime.max_num_seqs", "first": 32, "second": 7, "change": 25 / 32}
    ]
    code, out, _ = paceline("diff", bundle, tiny_copy)
    assert code == 1
    assert "runtime.max_num_seqs" in out
    refused(paceline("diff", bundle, tmp_path), "manifest.json")


def test_doctor_examines_a_bundle(paceline, bundle: Path, tiny_copy: Path) -> None:
    code, out, _ = paceline("doctor", bundle, "--json")
    assert code == 0
    assert all(check["ok"] for check in json.loads(out)["checks"])
    (tiny_copy / "tokenizer.json").unlink()
    code, out, _ = paceline("doctor", tiny_copy)
    assert code == 2
    assert "tokenizer.json is missing" in out


def test_run_can_leave_hashing_and_the_memory_check_out(paceline, tiny_copy: Path) -> None:
    path = tiny_copy / "graph" / "target.onnx.data"  # not read by the cpu engine
    path.write_bytes(bytes(path.stat().st_size))
    arguments = ("run", tiny_copy, "-p", "x", "--max-tokens", 2)
    refused(paceline(*arguments), "graph/target.onnx.data")
    assert paceline(*arguments, "--digests", "sizes", "--memory-check", "off")[0] == 0


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


@pytest.mark.parametrize("flag", [("--weights", "int3"), ("--kv-cache-dtype", "fp3"), ("--max-draft-len", "99")])
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
