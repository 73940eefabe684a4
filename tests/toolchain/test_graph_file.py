"""save_graph: a stock onnxruntime opens what it writes, equal builds are equal bytes, memory holds one tensor."""

import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from exports import export_of
from graph_text import graph, weights
from tiny_models import FAMILIES, RandomCheckpoint

from paceline.passes.compare_graphs import run_graph
from paceline.passes.target import Target
from paceline.toolchain.export import export_model
from paceline.toolchain.graph_file import data_path, save_graph
from paceline.toolchain.optimize import lower, optimize

TESTS = Path(__file__).parent.parent
BUILD = """
import sys
from pathlib import Path
from tiny_models import FAMILIES, RandomCheckpoint
from paceline.passes.target import Target
from paceline.toolchain.export import export_model
from paceline.toolchain.graph_file import save_graph
from paceline.toolchain.optimize import lower, optimize, set_precision

target, folder = Target(weights="int8"), Path(sys.argv[1])
model = export_model(RandomCheckpoint(FAMILIES["gemma3"])).model
optimize(model, target)
set_precision(model, target)
save_graph(model, folder / "portable.onnx")
lower(model, target)
save_graph(model, folder / "cpu.onnx")
"""


def small() -> ir.Model:
    text = """(float[T,64] x) => (float[T,32] y) {
        a = MatMul(x, w)
        y = paceline.SwiGLU(a)
    }"""
    return graph(text, **weights(w=[64, 64]))


def test_stock_onnxruntime_runs_the_file(tmp_path: Path) -> None:
    path = tmp_path / "g.onnx"
    save_graph(small(), path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["g.onnx", "g.onnx.data"]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = weights(x=[3, 64])
    (y,) = session.run(["y"], x)
    np.testing.assert_allclose(y, run_graph(small(), x)["y"], rtol=1e-5, atol=1e-5)


def test_weights_lie_outside_on_whole_pages_of_memory(tmp_path: Path) -> None:
    model = export_of("llama")[1].model
    path = tmp_path / "g.onnx"
    save_graph(model, path)
    proto = onnx.load(path, load_external_data=False)
    places = {t.name: {e.key: e.value for e in t.external_data} for t in proto.graph.initializer if t.external_data}
    assert {place["location"] for place in places.values()} == {"g.onnx.data"}
    large = {name: place for name, place in places.items() if int(place["length"]) >= 4096}
    assert {"model.embed_tokens.weight", "lm_head.weight"} <= large.keys()
    assert all(int(place.get("offset", 0)) % 4096 == 0 for place in large.values())
    assert path.stat().st_size < 60_000


def test_saving_leaves_the_model_as_it_is(tmp_path: Path) -> None:
    model = small()
    tensor = model.graph.initializers["w"].const_value
    save_graph(model, tmp_path / "g.onnx")
    assert model.graph.initializers["w"].const_value is tensor
    assert not model.functions


@pytest.fixture(scope="module")
def two_builds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same model built by two processes that hash strings differently, into folders of different names."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "another_name")]
    for seed, folder in enumerate(folders):
        environment = {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-c", BUILD, folder], check=True, env=environment)
    return folders


def test_equal_builds_are_equal_bytes(two_builds: list[Path]) -> None:
    one, another = two_builds
    for name in ("portable.onnx", "portable.onnx.data", "cpu.onnx", "cpu.onnx.data"):
        assert (one / name).read_bytes() == (another / name).read_bytes(), name


def test_files_tell_nothing_of_the_machine(two_builds: list[Path]) -> None:
    for name in ("portable.onnx", "cpu.onnx"):
        written = (two_builds[0] / name).read_bytes()
        for word in (b"site-packages", b"stack_trace", b".py", str(TESTS.parent).encode(), b"pkg."):
            assert word not in written, word


def test_one_tensor_at_a_time_is_in_memory(tmp_path: Path) -> None:
    """From the checkpoint through merged and packed weights to the file: what was read is let go before the next."""
    checkpoint = RandomCheckpoint(FAMILIES["llama"])
    alive: set[int] = set()
    most = 0

    def read(name: str) -> np.ndarray:
        nonlocal most
        array = checkpoint.weights[name].copy()
        alive.add(id(array))
        weakref.finalize(array, alive.discard, id(array))
        most = max(most, len(alive))
        return array

    checkpoint.read = read  # type: ignore[method-assign]
    target = Target()
    model = export_model(checkpoint).model
    assert most <= 1, "exporting reads small vectors at most, one at a time"
    optimize(model, target)
    save_graph(model, tmp_path / "portable.onnx")
    lower(model, target)
    save_graph(model, tmp_path / "cpu.onnx")
    assert most <= 3, "q, k and v are merged; nothing else is held"
    assert not alive


def test_data_lies_beside_its_graph() -> None:
    assert data_path(Path("graph/target.onnx")) == Path("graph/target.onnx.data")
