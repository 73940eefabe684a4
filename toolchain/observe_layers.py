"""What flows through a model's linear layers and caches: one pass over sample windows, one window at a time.

A portable float32 graph and windows of ids flow in; for each linear layer the range of its rows flows out, and some of
the rows themselves, in a file a layer: the searches open one layer's after the other. Keeping rows in memory was the
alternative and lost: it grows with the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..passes.base import remove_dead_nodes
from ..passes.precision import layers_of
from ..plugins import contract
from ..plugins.contract import GraphFacts
from .errors import CheckpointError
from .graph_file import save_graph
from .ranges import Histogram
from .window_runner import WindowRunner

__all__ = ["LayerSeen", "Observed", "observe_layers"]

Floats = npt.NDArray[np.float32]
ROWS_KEPT = 256  # of each layer, spread over all windows: 7 candidates a layer are tried on them


@dataclass
class LayerSeen:
    """The rows of one layer so far: histogram, largest magnitude and sum of squares by channel, rows that were kept."""

    width: int
    histogram: Histogram = field(default_factory=Histogram)
    num_rows: int = 0
    largest: Floats = field(init=False)
    squares: npt.NDArray[np.float64] = field(init=False)
    rows: list[Floats] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.largest = np.zeros(self.width, np.float32)
        self.squares = np.zeros(self.width)

    def add(self, rows: Floats) -> None:
        """Take in the rows of one window [T, K]."""
        self.histogram.add(rows)
        self.num_rows += len(rows)
        self.largest = np.maximum(self.largest, np.abs(rows).max(axis=0))
        self.squares += np.square(rows, dtype=np.float64).sum(axis=0)

    @property
    def mean_square(self) -> Floats:
        """[K], of each channel."""
        return np.asarray(self.squares / max(self.num_rows, 1), np.float32)


@dataclass(frozen=True)
class Observed:
    """By module name and by layer number; `folder` holds the kept rows."""

    layers: Mapping[str, LayerSeen]
    keys: Mapping[int, Histogram]
    values: Mapping[int, Histogram]
    folder: Path

    def rows_of(self, module: str) -> Floats:
        """The kept rows [n, K] of one layer, read now."""
        return np.load(_rows_path(self.folder, list(self.layers).index(module)))  # type: ignore[no-any-return]


def observe_layers(
    model: ir.Model, facts: GraphFacts, windows: Sequence[Sequence[int]], folder: Path, threads: int
) -> Observed:
    """Run every window through `model` on stock onnxruntime and look on. Files go to `folder`, for as long as needed.

    Raises: CheckpointError naming the layer where a number is not finite.
    """
    watched, modules = _with_outputs(model)
    path = folder / "observed.onnx"
    save_graph(watched, path)
    runner = WindowRunner.on_stock(path, facts, threads)
    layers = {module: LayerSeen(width) for module, (_, width) in modules.items()}
    caches = range(len(facts.layers))
    observed = Observed(layers, {i: Histogram() for i in caches}, {i: Histogram() for i in caches}, folder)
    total = sum(map(len, windows))
    for window in windows:
        outputs = runner.outputs(window)
        keep = max(1, round(ROWS_KEPT * len(window) / total))
        for module, (output, _) in modules.items():
            _look(module, layers[module], np.asarray(outputs[output], np.float32), keep)
        for i in caches:
            pool = outputs[contract.kv_pages_out(i)]
            observed.keys[i].add(pool[0])
            observed.values[i].add(pool[1])
    for number, seen in enumerate(layers.values()):
        np.save(_rows_path(folder, number), np.concatenate(seen.rows))
        seen.rows.clear()
    return observed


def _look(module: str, seen: LayerSeen, rows: Floats, keep: int) -> None:
    try:
        seen.add(rows)
    except ValueError:
        raise CheckpointError(
            f"the inputs of {module} are not finite on the calibration text",
            needed="a model that computes numbers",
            do="look for NaN or huge weights in the layers before it",
        ) from None
    seen.rows.append(rows[:: max(1, len(rows) // keep)][:keep].copy())


def _with_outputs(model: ir.Model) -> tuple[ir.Model, dict[str, tuple[str, int]]]:
    """A clone of `model` that gives the rows of each layer as outputs, and by module the output's name and width.

    Logits are left out, and the head's matrix with them.
    """
    watched = model.clone()
    modules: dict[str, tuple[str, int]] = {}
    for layer in list(layers_of(watched.graph)):
        x = layer.linear.x
        if not x.is_graph_output():
            watched.graph.outputs.append(x)
        modules[layer.module] = (str(x.name), layer.linear.in_features)
    for value in [value for value in watched.graph.outputs if value.name == contract.LOGITS]:
        watched.graph.outputs.remove(value)
    remove_dead_nodes(watched)
    return watched, modules


def _rows_path(folder: Path, number: int) -> Path:
    return folder / f"rows_{number}.npy"
