"""Every refusal before anything is loaded, from made-up manifests and machines: what, found, needed, do."""

from dataclasses import replace

import pytest

from paceline.plugins.contract import GraphFacts, LayerCache
from paceline.runtime.errors import BundleError
from paceline.runtime.machine import Machine
from paceline.runtime.manifest import SCHEMA_VERSION, EngineEntry, EngineNeeds, FileEntry, Manifest, RoleEntry
from paceline.runtime.memory_need import MemoryNeed, memory_need
from paceline.runtime.policies import Limits
from paceline.runtime.preflight import Check, preflight, require

MIB = 1 << 20
FACTS = GraphFacts(1000, 64, 512, 16, "bfloat16", (LayerCache(2, 32),))
CPU = EngineNeeds(onnxruntime="1.23", opset=23, ir_version=10)
GPU = EngineNeeds(sm="90")
MACHINE = Machine({"onnxruntime": "1.23.0"}, "x86_64", frozenset({"avx2"}), None, 1024 * MIB)


def manifest(needs: EngineNeeds = CPU, kind: str = "cpu") -> Manifest:
    engine = EngineEntry(f"engines/{kind}/target.onnx", "bf16", needs, "bytes", 1000)
    role = RoleEntry("somewhere", "00", FACTS, (), {kind: engine})
    files = {engine.path: FileEntry(100, "00"), f"{engine.path}.data": FileEntry(20 * MIB, "00")}
    return Manifest(SCHEMA_VERSION, "tiny", {"target": role}, {}, {}, files)


def failed(*checks: Check) -> Check:
    (bad,) = (check for check in checks if not check.ok)
    with pytest.raises(BundleError, match=r"found: .* needed: .* do: ."):
        require(checks)
    return bad


def test_a_machine_that_has_everything() -> None:
    need = MemoryNeed(MIB, MIB, MIB)
    checks = preflight(manifest(), ("target",), "cpu", MACHINE, need)
    assert [check.what for check in checks] == [
        "target in the bundle",
        "target: engine",
        "target: onnxruntime",
        "memory",
    ]
    require(checks)


def test_a_role_that_is_not_there() -> None:
    bad = failed(*preflight(manifest(), ("target", "draft"), "cpu", MACHINE, None))
    assert (bad.found, bad.needed) == ("tiny holds target", "a draft")


def test_a_target_that_is_not_there() -> None:
    bad = failed(*preflight(manifest(), ("target",), "tensorrt", MACHINE, None))
    assert (bad.found, bad.needed) == ("engines for cpu", "one for tensorrt")
    assert "build.targets" in bad.do


@pytest.mark.parametrize(
    ("version", "ok"),
    [("1.23.0", True), ("1.23", True), ("1.22.2", False), ("1.9.0", False), ("2.0.0rc1", True), ("1.24.0.dev1", True)],
)
def test_versions_are_compared_as_numbers(version: str, ok: bool) -> None:
    machine = replace(MACHINE, versions={"onnxruntime": version})
    checks = preflight(manifest(), ("target",), "cpu", machine, None)
    assert checks[-1].ok is ok
    if not ok:
        bad = failed(*checks)
        assert bad.found == f"onnxruntime {version}"
        assert bad.needed == "1.23 or newer, for opset 23 and IR version 10"


def test_no_onnxruntime_at_all() -> None:
    assert failed(*preflight(manifest(), ("target",), "cpu", Machine(), None)).found == "no onnxruntime"


def test_instruction_sets_that_are_missing_are_named() -> None:
    needs = EngineNeeds(instruction_sets=("avx2", "amx_tile", "amx_int8"))
    assert failed(*preflight(manifest(needs), ("target",), "cpu", MACHINE, None)).found == (
        "this x86_64 lacks amx_int8, amx_tile"
    )


@pytest.mark.parametrize(
    ("sm", "found", "do"), [("87", "this GPU is sm_87", "rebuild for sm_87"), (None, "no GPU", "take the cpu engine")]
)
def test_an_engine_for_another_gpu(sm: str | None, found: str, do: str) -> None:
    machine = replace(MACHINE, sm=sm)
    bad = failed(*preflight(manifest(GPU, "tensorrt"), ("target",), "tensorrt", machine, None))
    assert bad.found == found
    assert bad.needed == "sm_90, which the engine was built for"
    assert do in bad.do


def test_an_engine_for_this_gpu() -> None:
    require(preflight(manifest(GPU, "tensorrt"), ("target",), "tensorrt", replace(MACHINE, sm="90"), None))


def test_memory_is_counted_by_part() -> None:
    limits = Limits(max_num_seqs=4, max_num_batched_tokens=64, max_draft_tokens=3)
    need = memory_need(manifest(), ("target",), "cpu", 10, limits)
    assert need.weights_bytes == 20 * MIB + 100
    assert need.cache_bytes == 10 * FACTS.page_bytes
    assert need.activation_bytes == 64 * 1000 + 4 * (1 + 3) * 1000 * 4  # rows, and logits of four chains of four


def test_too_little_memory_says_which_cache_would_fit() -> None:
    need = MemoryNeed(900 * MIB, 512 * MIB, 24 * MIB)
    bad = failed(*preflight(manifest(), ("target",), "cpu", MACHINE, need))
    assert bad.found == "1024 MiB can still be taken"
    assert bad.needed == "1436 MiB: 900 weights + 512 cache + 24 activations"
    assert bad.do.startswith("lower kv_cache_memory to 100 MiB")
    assert "--memory-check off" in bad.do


def test_weights_alone_do_not_fit() -> None:
    bad = failed(*preflight(manifest(), ("target",), "cpu", MACHINE, MemoryNeed(2000 * MIB, 1, 1)))
    assert "kv_cache_memory" not in bad.do


def test_unknown_memory_is_not_refused() -> None:
    require(
        preflight(manifest(), ("target",), "cpu", replace(MACHINE, available_bytes=None), MemoryNeed(1 << 50, 0, 0))
    )


def test_the_first_failure_is_raised_and_the_others_counted() -> None:
    checks = preflight(manifest(), ("target",), "cpu", Machine(available_bytes=0), MemoryNeed(1, 1, 1))
    with pytest.raises(BundleError, match=r"no onnxruntime.*1 more.*doctor"):
        require(checks)
