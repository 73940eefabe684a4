"""transpose_weights: matrices are stored as MatMul reads them."""

from graph_text import weights
from pass_case import check_kept, check_rewrite

from paceline.passes.transpose_weights import transpose_weights


def test_a_transposed_weight_becomes_a_weight() -> None:
    model = check_rewrite(
        transpose_weights,
        """(float[1,T,4] x) => (float[1,T,6] y) {
            t = Transpose <perm = [1, 0]> (w)
            y = MatMul(x, t)
        }""",
        "y = MatMul(x, w/transposed)",
        weights(w=[6, 4]),
    )
    assert set(model.graph.initializers) == {"w/transposed"}
    assert model.graph.initializers["w/transposed"].shape == [4, 6]


def test_a_tied_table_is_kept() -> None:
    check_kept(
        transpose_weights,
        """(int64[T] ids) => (float[T,6] y) {
            x = Gather(w, ids)
            t = Transpose <perm = [1, 0]> (w)
            y = MatMul(x, t)
        }""",
        weights(w=[6, 4]),
        "t: w has other users: a transposed copy would store it twice",
    )


def test_a_computed_matrix_is_no_candidate() -> None:
    check_kept(
        transpose_weights,
        """(float[6,4] w, float[1,T,4] x) => (float[1,T,6] y) {
            t = Transpose(w)
            y = MatMul(x, t)
        }""",
        {},
        None,
    )
