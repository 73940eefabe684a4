"""store_embedding: the table is rounded where the linear layers are."""

import ml_dtypes
import numpy as np
from graph_text import graph, listing, weights
from pass_case import check_kept, run_graph

from paceline.passes.base import run_passes
from paceline.passes.store_embedding import store_embedding
from paceline.passes.target import Target

LOOKUP = """(int64[T] ids) => (float[T,8] y) {
            rows = Gather(table, ids)
            y = Mul(rows, scale)
        }"""
TABLE = {**weights(table=[16, 8]), "scale": np.float32(3)}


def test_rows_come_from_a_rounded_table() -> None:
    model = graph(LOOKUP, **TABLE)
    (report,) = run_passes(model, Target(weights="int8"), (store_embedding,))
    assert report.count == 1
    assert (
        listing(model)
        == "rows/rows = Gather(table/bfloat16, ids, axis=0)\nrows = Cast(rows/rows, to=1)\ny = Mul(rows, scale)"
    )
    assert set(model.graph.initializers) == {"table/bfloat16", "scale"}
    assert run_passes(model, Target(weights="int8"), (store_embedding,))[0].count == 0
    ids = np.array([3, 0, 15])
    rounded = TABLE["table"].astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(run_graph(model, {"ids": ids})["y"], rounded[ids] * np.float32(3))


def test_a_tied_table_stays_whole_for_the_head() -> None:
    text = """(int64[T] ids) => (float[T,16] y) {
            rows = Gather(table, ids)
            head = Transpose <perm = [1, 0]> (table)
            y = MatMul(rows, head)
        }"""
    model = graph(text, **weights(table=[16, 8]))
    run_passes(model, Target(weights="bf16"), (store_embedding,))
    assert set(model.graph.initializers) == {"table", "table/bfloat16"}


def test_fp32_stays_exact() -> None:
    check_kept(store_embedding, LOOKUP, TABLE, "rows: the target keeps table in fp32")


def test_a_lookup_along_another_axis_is_no_candidate() -> None:
    text = "(int64[T] ids) => (float[16,T] y) { y = Gather <axis = 1> (table, ids) }"
    check_kept(store_embedding, text, weights(table=[16, 8]), None, Target(weights="bf16"))
