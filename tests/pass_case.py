"""What every test of a fusion asks: the count, the listing, a second run that rewrites nothing, and equal numbers.

`check_rewrite` takes the graph before as text and the listing expected after, so that a test reads as before / after.
Both graphs run on stock onnxruntime, where our operators are computed by their meanings.
"""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from graph_text import graph, listing
from tolerances import TOLERANCES

from paceline.passes.base import Pass, PassReport, run_passes
from paceline.passes.compare_graphs import run_graph
from paceline.passes.target import Target

__all__ = ["check_kept", "check_rewrite", "random_inputs"]

NUM_ROWS = 5
EXACT = Target(weights="fp32")

Weights = Mapping[str, np.ndarray | list[int]]


def check_rewrite(
    one_pass: Pass,
    before: str,
    expected: str,
    weights: Weights,
    count: int = 1,
    target: Target = EXACT,
) -> ir.Model:
    """Assert that `one_pass` turns `before` into `expected` in `count` rewrites and keeps the numbers; the result."""
    model = graph(before, **weights)
    (report,) = run_passes(model, target, (one_pass,))
    assert listing(model) == expected
    assert report.count == count
    assert run_passes(model, target, (one_pass,))[0].count == 0, "a second run must find nothing to do"
    assert_same_numbers(graph(before, **weights), model)
    return model


def check_kept(one_pass: Pass, text: str, weights: Weights, reason: str | None, target: Target = EXACT) -> PassReport:
    """Assert that `one_pass` leaves the graph as it is, and says `reason` (None: no candidate, nothing to say)."""
    model = graph(text, **weights)
    before = listing(model)
    (report,) = run_passes(model, target, (one_pass,))
    assert listing(model) == before
    assert report.count == 0
    assert report.reasons == (() if reason is None else (reason,))
    return report


def assert_same_numbers(before: ir.Model, after: ir.Model, dtype: str = "float32") -> None:
    """Assert that both graphs give equal outputs on random inputs within the table's tolerance of `dtype`."""
    inputs = random_inputs(before)
    wanted, found = run_graph(before, inputs), run_graph(after, inputs)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, **TOLERANCES[dtype], err_msg=name)


def random_inputs(model: ir.Model, num_rows: int = NUM_ROWS, seed: int = 0) -> dict[str, np.ndarray]:
    """Normal floats, and small whole numbers, for each graph input; unknown axes get `num_rows`."""
    rng = np.random.default_rng(seed)
    inputs = {}
    for value in model.graph.inputs:
        assert value.shape is not None
        shape = [size if isinstance(size, int) else num_rows for size in value.shape]
        floats = value.dtype == ir.DataType.FLOAT
        inputs[str(value.name)] = rng.standard_normal(shape).astype(np.float32) if floats else np.arange(num_rows)
    return inputs
