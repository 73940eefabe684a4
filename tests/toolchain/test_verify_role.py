"""Verification as a build does it: on real text, with what the recipe says, and its reports in the bundle."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from tiny_bundles import tiny_bundle, tiny_recipe
from wrong_rewrites import WRONG

from paceline.passes.errors import VerifyError
from paceline.runtime.bundle import open_bundle
from paceline.toolchain import verify_role
from paceline.toolchain.build import bisect_recipe, build_bundle
from paceline.toolchain.progress import Silent
from paceline.toolchain.recipe import load_recipe
from paceline.toolchain.verify_page import verify_html

PLANTS = {wrong.name: wrong for wrong in WRONG}
ON = {"verify": True}


def plant(monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    """Make one pass of the portable stage wrong from now on; its name."""
    wrong = PLANTS[name]

    def wrapped(one_pass: object) -> object:
        def edited(model: object, target: object) -> int:
            count = one_pass(model, target)
            wrong.plant(model)
            return count

        edited.__name__ = one_pass.__name__
        return edited if one_pass.__name__ == wrong.pass_name else one_pass

    stages = {**verify_role.STAGES, "portable": tuple(map(wrapped, verify_role.STAGES["portable"]))}
    monkeypatch.setattr(verify_role, "STAGES", stages)
    return wrong.pass_name


def report_of(bundle: Path) -> Mapping[str, Mapping[str, object]]:
    return json.loads((bundle / "reports" / "verify.json").read_text())


def test_a_verified_bundle_says_of_every_pass_what_it_changed(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path, build=ON)
    report = report_of(bundle)
    assert set(report) == {"target", "draft"}
    assert list(report["target"]["stages"]) == ["portable", "precision", "cpu"]
    by_name = {one["name"]: one for stage in report["target"]["stages"].values() for one in stage}
    assert by_name["cast_linears"]["status"] == "passed"
    assert by_name["cast_linears"]["tolerance"]["kind"] == "bf16"
    names = [one["name"] for one in by_name["cast_linears"]["figures"]]
    assert names == ["layer.0", "layer.1", "layer.2", "logits"]
    page = (bundle / "reports" / "verify.html").read_text()
    assert page == verify_html("bundle", report)
    assert page.count("<svg") == 2 * len(report)
    assert "http" not in page, "the page fetches nothing"
    assert {"reports/verify.json", "reports/verify.html"} <= set(open_bundle(bundle).manifest.files)


def test_two_builds_write_the_same_reports(tmp_path: Path) -> None:
    first = (tiny_bundle(tmp_path, build=ON) / "reports" / "verify.json").read_bytes()
    assert (tiny_bundle(tmp_path, build=ON) / "reports" / "verify.json").read_bytes() == first


def test_a_gate_turns_verification_on_and_the_recipe_has_the_last_word(tmp_path: Path) -> None:
    gate = {"accuracy": {"max_kl": 1.0}}
    assert not load_recipe(tiny_recipe(tmp_path)).verifies
    assert load_recipe(tiny_recipe(tmp_path, gates=gate)).verifies
    assert not load_recipe(tiny_recipe(tmp_path, gates=gate, build={"verify": False})).verifies


def test_a_bad_pass_stops_the_build_and_leaves_its_graphs_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = plant(monkeypatch, "gate and up swapped")
    recipe = load_recipe(tiny_recipe(tmp_path, build=ON))
    with pytest.raises(VerifyError, match=f"pass {name}"):
        build_bundle(recipe, tmp_path / "bundle", Silent())
    assert not (tmp_path / "bundle").exists()
    assert (tmp_path / "bundle.failed" / "target" / name / "before.onnx").is_file()


def test_a_bad_pass_is_reverted_where_the_recipe_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = plant(monkeypatch, "gate and up swapped")
    bundle = tiny_bundle(tmp_path, build={**ON, "on_bad_pass": "revert"})
    status = {one["name"]: one["status"] for one in report_of(bundle)["target"]["stages"]["portable"]}
    assert status[name] == "reverted"
    assert name not in {one.name for one in open_bundle(bundle).role("target").passes}
    assert "class='bad'" in (bundle / "reports" / "verify.html").read_text()


def test_bisecting_a_recipe_names_the_pass_and_builds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe(tiny_recipe(tmp_path))
    monkeypatch.chdir(tmp_path)
    bisect_recipe(recipe, Silent())
    name = plant(monkeypatch, "k and v swapped")
    with pytest.raises(VerifyError, match=f"pass {name}"):
        bisect_recipe(recipe, Silent())
    assert {path.name for path in tmp_path.iterdir()} == {"model", "recipe.yaml", "bisected"}


def test_a_tolerance_of_the_recipe_reaches_the_pass(tmp_path: Path) -> None:
    recipe = load_recipe(tiny_recipe(tmp_path, build=ON, passes={"cast_linears": {"tolerance": 1e-5}}))
    with pytest.raises(VerifyError, match="pass cast_linears"):
        build_bundle(recipe, tmp_path / "bundle", Silent())
