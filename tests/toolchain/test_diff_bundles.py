"""Two bundles side by side: nothing where they are the same, and every kind of difference in its part."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from manifest_edits import edit_manifest

from paceline.runtime.bundle_files import file_entry
from paceline.runtime.errors import BundleError
from paceline.toolchain.diff_bundles import diff_bundles


def found(one: Path, two: Path) -> dict[str, list[str]]:
    """Places that differ, by part."""
    return {part: [entry.where for entry in entries] for part, entries in diff_bundles(one, two).items() if entries}


def add_file(bundle: Path, name: str, content: object) -> None:
    path = bundle / name
    path.write_text(json.dumps(content))
    entry = file_entry(path)
    edit_manifest(bundle, lambda manifest: manifest["files"].update({name: vars(entry)}))


def test_a_copy_is_the_same(tiny_whole: Path, tiny_copy: Path) -> None:
    assert found(tiny_whole, tiny_copy) == {}


def test_names_places_and_clocks_make_no_difference(tiny_whole: Path, tiny_copy: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["name"] = "other"
        manifest["recipe"]["meta"]["description"] = "other"
        manifest["recipe"]["target"]["checkpoint"] = "/somewhere/else"
        manifest["roles"]["target"]["source"] = "/somewhere/else"
        manifest["files"]["reports/build.json"]["sha256"] = "0" * 64

    edit_manifest(tiny_copy, change)
    assert found(tiny_whole, tiny_copy) == {}


@pytest.mark.parametrize(
    ("part", "where", "change"),
    [
        ("recipe", "runtime.max_num_seqs", lambda m: m["recipe"]["runtime"].update(max_num_seqs=8)),
        ("sources", "target.source_sha256", lambda m: m["roles"]["target"].update(source_sha256="0")),
        ("sources", "draft.tokenizer_sha256", lambda m: m["roles"]["draft"].update(tokenizer_sha256="0")),
        ("sources", "target.facts.vocab_size", lambda m: m["roles"]["target"]["facts"].update(vocab_size=9)),
        ("passes", "target.eliminate_duplicates (2)", lambda m: m["roles"]["target"]["passes"][5].update(count=99)),
        ("engines", "target.cpu.weights", lambda m: m["roles"]["target"]["engines"]["cpu"].update(weights="int8")),
        ("engines", "target.cpu.needs.sm", lambda m: m["roles"]["target"]["engines"]["cpu"]["needs"].update(sm="90")),
        ("sizes", "tokenizer.json", lambda m: m["files"]["tokenizer.json"].update(size_bytes=9)),
        ("contents", "tokenizer.json", lambda m: m["files"]["tokenizer.json"].update(sha256="9")),
        ("tools", "numpy", lambda m: m["tools"].update(numpy="0.1")),
    ],
)
def test_each_kind_of_difference(
    tiny_whole: Path, tiny_copy: Path, part: str, where: str, change: Callable[[dict[str, Any]], None]
) -> None:
    edit_manifest(tiny_copy, change)
    assert found(tiny_whole, tiny_copy) == {part: [where]}


def test_figures_are_compared_and_those_that_moved_furthest_come_first(tiny_copy: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(tiny_copy, tmp_path / "other"))
    add_file(tiny_copy, "calibration.json", {"a": {"largest": 1.0}, "b": {"smoothing": [1.0, 2.0]}, "c": 5})
    add_file(other, "calibration.json", {"a": {"largest": 1.1}, "b": {"smoothing": [1.0, 4.0]}, "c": 5})
    add_file(tiny_copy, "reports/accuracy.json", {"target": {"gate": {"kl": 0.01}}})
    add_file(other, "reports/accuracy.json", {"target": {"gate": None}})
    differences = diff_bundles(tiny_copy, other)
    assert [(one.where, one.first, round(one.change or 0, 3)) for one in differences["scales"]] == [
        ("b.smoothing", "2 numbers", 0.5), ("a.largest", 1.0, 0.091),
    ]  # fmt: skip
    assert [one.where for one in differences["accuracy"]] == ["target.gate.kl"]


def test_figures_that_cannot_be_read_are_said_to_be_so(tiny_copy: Path, tiny_whole: Path) -> None:
    add_file(tiny_copy, "calibration.json", {})
    (tiny_copy / "calibration.json").write_text("{")
    (entry,) = diff_bundles(tiny_copy, tiny_whole)["scales"]
    assert entry.first == "calibration.json cannot be read"


def test_what_is_no_bundle_is_refused(tiny_whole: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"manifest\.json"):
        diff_bundles(tiny_whole, tmp_path)
