"""All checks of opening at once, those after a failure too, as far as they make sense."""

from pathlib import Path

from paceline.runtime.machine import Machine
from paceline.toolchain.doctor_bundle import examine_bundle


def failing(folder: Path, machine: Machine | None = None) -> list[str]:
    return [check.what for check in examine_bundle(folder, machine=machine) if not check.ok]


def test_a_bundle_that_runs_here(tiny_whole: Path) -> None:
    assert failing(tiny_whole) == []
    assert [check.what for check in examine_bundle(tiny_whole)] == [
        "manifest", "files", "target in the bundle", "target: engine", "target: onnxruntime", "memory",
    ]  # fmt: skip


def test_all_that_is_wrong_is_told(tiny_copy: Path) -> None:
    (tiny_copy / "tokenizer.json").write_text("x")
    assert failing(tiny_copy, Machine(available_bytes=1)) == ["files", "target: onnxruntime", "memory"]


def test_a_manifest_that_cannot_be_read_ends_it(tiny_copy: Path, tmp_path: Path) -> None:
    (tiny_copy / "manifest.json").write_text("{}")
    assert failing(tiny_copy) == ["manifest"]
    assert failing(tmp_path / "nowhere") == ["manifest"]
