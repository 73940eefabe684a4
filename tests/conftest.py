"""What tests of several folders share: the --long flag, the families, and bundles that are built once a run."""

import shutil
from pathlib import Path

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The fixture `family` of a module, and a test's `refused_family`, are families; with --long all of them."""
    has_family = "family" in metafunc.fixturenames and hasattr(metafunc.module, "family")
    if not has_family and "refused_family" not in metafunc.fixturenames:
        return
    from tiny_families import FAMILIES, MORE_FAMILIES, MORE_REFUSED, REFUSED

    is_long = metafunc.config.getoption("--long")
    if has_family:
        names = sorted({**FAMILIES, **(MORE_FAMILIES if is_long else {})})
        metafunc.parametrize("family", names, indirect=True, scope="module")
    else:
        metafunc.parametrize("refused_family", sorted({**REFUSED, **(MORE_REFUSED if is_long else {})}))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="compare many times as many tokens")


@pytest.fixture(scope="session")
def repetitions(request: pytest.FixtureRequest) -> int:
    """How often random tests repeat what one CI run does once."""
    return 20 if request.config.getoption("--long") else 1


@pytest.fixture(scope="session")
def tiny_whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of `tiny_recipe`; for reading only."""
    from tiny_bundles import tiny_bundle

    return tiny_bundle(tmp_path_factory.mktemp("tiny"), meta={"name": "tiny"})


@pytest.fixture
def tiny_copy(tiny_whole: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(tiny_whole, tmp_path / "bundle"))


@pytest.fixture(scope="session")
def demo_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's bundle: the real model in bf16 with its layer-subset draft."""
    return build_recipe("smollm2-135m", tmp_path_factory.mktemp("bundles"))


@pytest.fixture(scope="session")
def demo_bundle_int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with int8 weights."""
    return build_recipe("smollm2-135m-int8", tmp_path_factory.mktemp("bundles"))


def build_recipe(name: str, folder: Path) -> Path:
    """Build recipes/NAME.yaml into `folder`."""
    from paceline.toolchain.build import build_bundle
    from paceline.toolchain.progress import Silent
    from paceline.toolchain.recipe import load_recipe

    recipe = Path(__file__).parent.parent / "recipes" / f"{name}.yaml"
    build_bundle(load_recipe(recipe), folder / name, Silent())
    return folder / name
