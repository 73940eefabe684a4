"""The tree keeps its word: packaging lists every folder, imports are relative and run one way, nothing strays.

The old bug behind the first test: a folder missing from `packages` vanishes from the wheel without a word, while an
editable install goes on working.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SIDES = ("toolchain", "passes", "plugins", "runtime")
MAY_IMPORT = {
    "toolchain": {"toolchain", "passes", "plugins", "runtime"},
    "passes": {"passes", "plugins"},
    "plugins": {"plugins"},
    "runtime": {"runtime", "plugins"},
}
HEAVY = {"torch", "onnx", "onnx_ir", "onnxscript", "transformers"}


def sources(side: str) -> list[Path]:
    return sorted((ROOT / side).rglob("*.py"))


def imported_sides(path: Path) -> Iterator[str]:
    """Top folders that `path` imports, resolved from its relative imports."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from ((*base, *name.split("."))[0] for name in names)


def absolute_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.split(".")[0]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)


def test_packages_name_every_folder_with_an_init() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = {"paceline"} | {
        ".".join(("paceline", *path.parent.relative_to(ROOT).parts))
        for side in SIDES
        for path in (ROOT / side).rglob("__init__.py")
    }
    assert listed == found


def test_every_source_folder_has_an_init() -> None:
    bare = {
        str(path.parent.relative_to(ROOT))
        for side in SIDES
        for path in sources(side)
        if not (path.parent / "__init__.py").exists()
    }
    assert bare == set()


def test_no_stray_python_at_the_root() -> None:
    assert [path.name for path in ROOT.glob("*.py")] == ["__init__.py"]


@pytest.mark.parametrize("side", SIDES)
def test_imports_run_one_way(side: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} -> {found}"
        for path in sources(side)
        for found in imported_sides(path)
        if found in SIDES and found not in MAY_IMPORT[side]
    ]
    assert wrong == []


@pytest.mark.parametrize("side", SIDES)
def test_imports_inside_are_relative(side: str) -> None:
    assert [str(path) for path in sources(side) if "paceline" in absolute_imports(path)] == []


def test_runtime_imports_nothing_heavy() -> None:
    assert [str(path) for path in sources("runtime") if HEAVY & set(absolute_imports(path))] == []
