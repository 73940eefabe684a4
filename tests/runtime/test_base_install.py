"""The base install is the runtime: it runs a bundle in an environment that has no torch, onnx or transformers.

The environment is a real one, made of links to the distributions that the base install and the extra `cpu` name, and to
what those need in turn. Blocking imports in this process was the alternative and lost: it does not notice a dependency
that pyproject.toml forgot.
"""

import json
import re
import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tiny_bundles import tiny_bundle

ROOT = Path(__file__).parent.parent.parent
HEAVY = ("torch", "onnx", "onnx_ir", "onnxscript", "transformers", "gguf", "safetensors")


def named_distributions() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["cpu"]]


def closure(requirements: list[str]) -> set[str]:
    """Names of the distributions and of all that they need here."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        waiting += [Requirement(text) for text in metadata.requires(name) or []]
    return found


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in closure(named_distributions()):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            link = site / top
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))))
    (site / "paceline").symlink_to(ROOT)
    return folder / "bin" / "python"


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), *arguments], capture_output=True, text=True, timeout=120, cwd=python.parent, env={"PATH": ""}
    )


def test_nothing_heavy_is_there(python: Path) -> None:
    for name in HEAVY:
        done = run(python, "-c", f"import {name}")
        assert "ModuleNotFoundError" in done.stderr, name


def test_every_module_of_the_runtime_imports(python: Path) -> None:
    modules = sorted(
        f"paceline.runtime.{path.stem}" for path in (ROOT / "runtime").glob("*.py") if path.stem != "__init__"
    )
    done = run(python, "-c", f"import importlib\nfor name in {modules}: importlib.import_module(name)")
    assert done.returncode == 0, done.stderr


def test_a_bundle_runs_and_the_build_says_what_it_lacks(python: Path, tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path)
    command = ("-c", "from paceline.toolchain.cli import main; main()")
    done = run(python, *command, "run", str(bundle), "-p", "abc", "--max-tokens", "5", "--ignore-eos", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["requests"][0]["token_ids"]) == 5
    done = run(python, *command, "build", str(tmp_path / "recipe.yaml"))
    assert done.returncode == 2
    assert "pip install 'paceline[build]'" in done.stderr
    assert sys.version_info >= (3, 11)
