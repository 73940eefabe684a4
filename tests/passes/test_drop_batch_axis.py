"""drop_batch_axis: an axis of 1 from the ids to the logits goes, all of it or none."""

import pytest
from graph_text import weights
from pass_case import check_kept, check_rewrite

from paceline.passes.drop_batch_axis import drop_batch_axis

WEIGHTS = {
    **weights(table=[9, 8], norm=[8], wide=[8, 12], head=[8, 9], head_norm=[4], angles=[2]),
    "first": [0],
    "first_and_last": [0, 2],
    "two": [2],
    "heads": [1, -1, 2, 4],
    "rows": [1, -1, 8],
    "parts": [8, 4],
}


def test_a_whole_graph_loses_the_axis() -> None:
    check_rewrite(
        drop_batch_axis,
        """(int64[T] ids, int64[T] positions) => (float[T,9] y) {
            batch = Unsqueeze(ids, first)
            x = Gather(table, batch)
            n = RMSNormalization <axis = 2> (x, norm)
            both = MatMul(n, wide)
            a, b = Split <axis = 2> (both, parts)
            h = Reshape(a, heads)
            t = Transpose <perm = [0, 2, 1, 3]> (h)
            hn = RMSNormalization(t, head_norm)
            u = Transpose <perm = [0, 2, 1, 3]> (hn)
            r = Reshape(u, rows)
            p = Unsqueeze(positions, first_and_last)
            c = Cast <to = 1> (p)
            s = Mul(c, r)
            total = Add(s, x)
            logits = MatMul(total, head)
            y = Squeeze(logits, first)
        }""",
        "x/unbatched = Gather(table, ids)\n"
        "n/unbatched = RMSNormalization(x/unbatched, norm, axis=1)\n"
        "both/unbatched = MatMul(n/unbatched, wide)\n"
        "a/unbatched, b/unbatched = Split(both/unbatched, [8, 4], axis=1)\n"
        "h/unbatched = Reshape(a/unbatched, [-1, 2, 4])\n"
        "t/unbatched = Transpose(h/unbatched, perm=[1, 0, 2])\n"
        "hn/unbatched = RMSNormalization(t/unbatched, head_norm)\n"
        "u/unbatched = Transpose(hn/unbatched, perm=[1, 0, 2])\n"
        "r/unbatched = Reshape(u/unbatched, [-1, 8])\n"
        "p/unbatched = Unsqueeze(positions, [1])\n"
        "c/unbatched = Cast(p/unbatched, to=1)\n"
        "s/unbatched = Mul(c/unbatched, r/unbatched)\n"
        "total/unbatched = Add(s/unbatched, x/unbatched)\n"
        "y = MatMul(total/unbatched, head)",
        WEIGHTS,
        count=16,
    )


def test_tables_and_flat_rows_lose_it_too() -> None:
    """Expand, Slice and reductions by their axes; rows that a model flattened get no axis back."""
    check_rewrite(
        drop_batch_axis,
        """(int64[T] positions, float[T,8] x) => (float[T,8] y) {
            p = Unsqueeze(positions, first_and_last)
            f = Cast <to = 1> (p)
            a = Mul(f, angles)
            column = Unsqueeze(a, three)
            pairs = Expand(column, twice)
            sum = ReduceSum <keepdims = 0> (pairs, three)
            even = Slice(sum, first, one, two)
            again = Reshape(x, batched)
            total = Add(again, even)
            y = Reshape(total, flat)
        }""",
        "p/unbatched = Unsqueeze(positions, [1])\n"
        "f/unbatched = Cast(p/unbatched, to=1)\n"
        "a/unbatched = Mul(f/unbatched, angles)\n"
        "column/unbatched = Unsqueeze(a/unbatched, [2])\n"
        "pairs/unbatched = Expand(column/unbatched, [1, 1, 2])\n"
        "sum/unbatched = ReduceSum(pairs/unbatched, [2], keepdims=0)\n"
        "even/unbatched = Slice(sum/unbatched, [0], [1], [1])\n"
        "again/unbatched = Reshape(x, [-1, 8])\n"
        "total/unbatched = Add(again/unbatched, even/unbatched)\n"
        "y = Reshape(total/unbatched, [-1, 8])",
        {**WEIGHTS, "three": [3], "one": [1], "twice": [1, 1, 1, 2], "batched": [1, -1, 8], "flat": [-1, 8]},
        count=10,
    )


def test_an_axis_may_end_in_a_gather_of_its_only_entry_or_in_a_reshape() -> None:
    check_rewrite(
        drop_batch_axis,
        """(float[T,8] x) => (float[T,8] y, float[N] z) {
            batch = Unsqueeze(x, first)
            a = Relu(batch)
            y = Gather(a, entry)
            b = Abs(batch)
            z = Reshape(b, flat)
        }""",
        "y = Relu(x)\nb/unbatched = Abs(x)\nz = Reshape(b/unbatched, [-1])",
        {"first": [0], "entry": 0, "flat": [-1]},
        count=5,
    )


@pytest.mark.parametrize(
    ("middle", "reason"),
    [
        ("a = CumSum(batch, one)", "a: CumSum is not known to carry a batch axis through"),
        (
            "a = Softmax <axis = 0> (batch)",
            "a: Softmax works along the batch axis, or joins values with and without it",
        ),
        ("a = Transpose <perm = [1, 0, 2]> (batch)", "a: Transpose moves the batch axis"),
        ("a = Mul(batch, stack)", "a: stack has as many axes as the values with the batch axis"),
        ("a = MatMul(batch, stack)", "a: MatMul has another operand than a matrix"),
        ("a = Reshape(batch, copy)", "a: Reshape to a shape that is computed, or copies axes"),
        ("a = Relu(batch)\n extra = Relu(batch)", "extra: the graph output extra has the axis"),
    ],
)
def test_one_node_in_the_way_keeps_the_whole_graph(middle: str, reason: str) -> None:
    extra = ", float[1,4,4] extra" if "extra" in middle else ""
    check_kept(
        drop_batch_axis,
        f"""(float[4,4] x) => (float[N,M] y {extra}) {{
            batch = Unsqueeze(x, first)
            {middle}
            y = Gather(a, entry)
        }}""",
        {**weights(stack=[1, 4, 4]), "first": [0], "entry": 0, "one": 1, "copy": [0, 4, 4]},
        reason,
    )
