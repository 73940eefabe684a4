"""The CPU engine: in place, right against its own meaning, and plain about what it cannot open."""

from pathlib import Path

import numpy as np
import pytest
from tiny_bundles import tiny_bundle

from paceline.plugins.contract import GraphFacts
from paceline.runtime import engine_cpu
from paceline.runtime.batch import Batch
from paceline.runtime.bundle import open_bundle
from paceline.runtime.engine_cpu import CpuEngine
from paceline.runtime.errors import BundleError, NativeLibraryError

NUM_PAGES = 12


@pytest.fixture(scope="module", params=["fp32", "bf16", "int8"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, GraphFacts]:
    bundle = open_bundle(tiny_bundle(tmp_path_factory.mktemp(request.param), quantization={"weights": request.param}))
    return request.param, bundle.engine("target", "cpu")[1], bundle.role("target").facts


def batch(requests: list[tuple[int, int]], rows: list[int] | None = None, seed: int = 0) -> Batch:
    """`requests` are (past, new); each has three pages of its own; logits of every row unless `rows` says which."""
    total = sum(new for _, new in requests)
    ids = np.random.default_rng(seed).integers(3, 250, total)
    positions = np.concatenate([np.arange(past, past + new) for past, new in requests])
    starts = np.cumsum([0, *(new for _, new in requests)]).astype(np.int32)
    lengths = np.array([past + new for past, new in requests], np.int32)
    table = np.arange(3 * len(requests), dtype=np.int32).reshape(-1, 3)
    wanted = np.arange(total) if rows is None else np.array(rows, np.int64)
    return Batch(ids, positions, starts, lengths, table, wanted)


def steps() -> list[Batch]:
    """A prefill, a decode step, a mix with a verification of four rows."""
    return [
        batch([(0, 20), (0, 5)]),
        batch([(20, 1), (5, 1)], seed=1),
        batch([(21, 4), (6, 1), (0, 17)], seed=2),
    ]


def test_the_kernels_compute_what_the_ops_mean(built: tuple[str, Path, GraphFacts]) -> None:
    """Relative to the spread of the logits; int8 rounds rows that differ in the last bit to neighbouring steps, and
    later rows see that in their keys."""
    weights, path, facts = built
    ours, stock = (
        open_engine(path, facts, NUM_PAGES, threads=2)
        for open_engine in (CpuEngine.open, CpuEngine.open_without_kernels)
    )
    room = {"fp32": 1e-4, "bf16": 2e-2, "int8": 8e-2}[weights]
    for step in steps():
        got, wanted = ours.run(step).copy(), stock.run(step).copy()
        assert got.shape == (len(step.logit_rows), facts.vocab_size)
        assert np.abs(got - wanted).max() < room * wanted.std()


def test_a_request_has_the_same_bits_alone(built: tuple[str, Path, GraphFacts]) -> None:
    _, path, facts = built
    engine = CpuEngine.open(path, facts, NUM_PAGES, threads=2)
    together = engine.run(batch([(0, 20), (0, 5), (0, 11)])).copy()
    first = batch([(0, 20), (0, 5), (0, 11)])
    alone = engine.run(
        Batch(
            first.input_ids[20:25],
            first.positions[20:25],
            np.array([0, 5], np.int32),
            np.array([5], np.int32),
            first.page_table[1:2],
            np.arange(5),
        )
    )
    if built[0] != "fp32":  # the promise is for bf16 and int8; float32 norms and tables run through onnxruntime too
        assert alone.tobytes() == together[20:25].tobytes()
    np.testing.assert_allclose(alone, together[20:25], rtol=1e-4, atol=1e-4)


def test_a_step_may_want_no_logits_and_buffers_are_reused(built: tuple[str, Path, GraphFacts]) -> None:
    _, path, facts = built
    engine = CpuEngine.open(path, facts, NUM_PAGES, threads=1)
    assert engine.run(batch([(0, 9)], rows=[])).shape == (0, facts.vocab_size)
    one = engine.run(batch([(0, 9)], rows=[8]))
    two = engine.run(batch([(0, 9)], rows=[8]))
    assert one.ctypes.data == two.ctypes.data


def test_files_that_are_no_engine_are_named(built: tuple[str, Path, GraphFacts], tmp_path: Path) -> None:
    _, _, facts = built
    (tmp_path / "target.onnx").write_bytes(b"nothing of the kind")
    for name in ("target.onnx", "missing.onnx"):
        with pytest.raises(BundleError, match=name):
            CpuEngine.open(tmp_path / name, facts, NUM_PAGES, threads=1)


def test_a_library_that_onnxruntime_does_not_take_is_named(
    built: tuple[str, Path, GraphFacts], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "kernels.so").write_bytes(b"no library")
    monkeypatch.setattr(engine_cpu, "library_path", lambda: tmp_path / "kernels.so")
    with pytest.raises(NativeLibraryError, match=r"kernels\.so"):
        CpuEngine.open(built[1], built[2], NUM_PAGES, threads=1)
