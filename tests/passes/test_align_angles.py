"""align_angles: rows of angles that are no whole vectors are widened, and a row's bits no longer depend on its company.

The old bug: with 2 angles a row, one more row in the step moved the last bit of a sine, and a request's logits with it.
"""

import numpy as np
import onnx_ir as ir
from graph_text import graph
from pass_case import assert_same_numbers, check_kept

from paceline.passes.align_angles import align_angles
from paceline.passes.base import run_passes
from paceline.passes.compare_graphs import run_session, stock_session
from paceline.passes.target import Target

TEXT = (
    "(float[T,{width}] a) => (float[T,{width}] c, float[T,{width}] s) {{ d = Cos(a)  e = Sin(a)"
    "  c = Neg(d)  s = Neg(e) }}"
)


def test_both_tables_read_the_same_widened_angles() -> None:
    model = graph(TEXT.format(width=6))
    assert [report.count for report in run_passes(model, Target(), (align_angles, align_angles))] == [2, 0]
    assert sorted(node.op_type for node in model.graph) == ["Cos", "Neg", "Neg", "Pad", "Sin", "Slice", "Slice"]
    assert_same_numbers(graph(TEXT.format(width=6)), model)


def test_whole_vectors_are_kept() -> None:
    check_kept(align_angles, TEXT.format(width=32), {}, None)


def test_the_bits_of_a_row_do_not_depend_on_the_rows_around_it() -> None:
    model = graph(TEXT.format(width=2))
    run_passes(model, Target(), (align_angles,))
    angles = np.random.default_rng(0).uniform(0, 100, (31, 2)).astype(np.float32)
    assert _alone(model, angles) == _together(model, angles)


def _alone(model: ir.Model, angles: np.ndarray) -> bytes:
    session = stock_session(model)
    return b"".join(run_session(session, {"a": row[None]})[name].tobytes() for name in "cs" for row in angles)


def _together(model: ir.Model, angles: np.ndarray) -> bytes:
    found = run_session(stock_session(model), {"a": angles})
    return b"".join(found[name].tobytes() for name in "cs")
