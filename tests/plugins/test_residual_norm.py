"""ResidualNorm: kernel, meaning and NumPy agree; a row's bits depend on nothing else."""

import numpy as np
import pytest
from kernel_case import KernelCase, bits_of
from tolerances import TOLERANCES

EPSILON = 1e-5


def case_of(width: int) -> KernelCase:
    example = np.zeros((1, width), np.float32)
    return KernelCase(
        "ResidualNorm",
        {"epsilon": EPSILON},
        {},
        {"x": example, "residual": example, "weight": np.ones(width, np.float32)},
    )


def arrays_for(rows: int, width: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(width)
    return {
        "x": rng.standard_normal((rows, width), np.float32),
        "residual": rng.standard_normal((rows, width), np.float32) * 3,
        "weight": rng.standard_normal(width).astype(np.float32),
    }


@pytest.mark.parametrize("width", [1, 15, 16, 17, 576])
def test_kernel_and_meaning_agree_with_numpy(width: int) -> None:
    arrays = arrays_for(5, width)
    total = arrays["x"].astype(np.float64) + arrays["residual"]
    normalized = total / np.sqrt((total**2).mean(axis=1, keepdims=True) + EPSILON) * arrays["weight"]
    for runner in (case_of(width).kernel(), case_of(width).meaning()):
        got = runner(**arrays)
        np.testing.assert_allclose(got[0], normalized, **TOLERANCES["float32"])
        np.testing.assert_allclose(got[1], total, **TOLERANCES["float32"])


def test_a_row_has_the_same_bits_in_any_number_of_rows() -> None:
    arrays = arrays_for(70, 100)
    kernel = case_of(100).kernel()
    together = kernel(**arrays)
    for first, last in ((0, 1), (3, 20), (17, 66), (69, 70)):
        part = kernel(**{**arrays, "x": arrays["x"][first:last], "residual": arrays["residual"][first:last]})
        for got, whole in zip(part, together, strict=True):
            assert bits_of(got) == bits_of(whole[first:last])


def test_a_row_of_zeros_stays_zeros() -> None:
    zeros = np.zeros((2, 32), np.float32)
    for got in case_of(32).kernel()(x=zeros, residual=zeros, weight=np.ones(32, np.float32)):
        np.testing.assert_array_equal(got, 0)


def test_shapes_that_do_not_fit_are_refused() -> None:
    arrays = arrays_for(3, 32)
    with pytest.raises(Exception, match="do not fit"):
        case_of(32).kernel()(**{**arrays, "weight": np.ones(31, np.float32)})
