"""SwiGLU: kernel, meaning and NumPy agree, also where the exponential ends."""

import numpy as np
import pytest
from kernel_case import KernelCase, bits_of
from tolerances import TOLERANCES

CASE = KernelCase("SwiGLU", {}, {}, {"gate_up": np.zeros((1, 4), np.float32)})


@pytest.mark.parametrize("width", [1, 15, 16, 17, 1536])
def test_kernel_and_meaning_agree_with_numpy(width: int) -> None:
    gate_up = np.random.default_rng(width).standard_normal((6, 2 * width), np.float32) * 4
    gate, up = np.split(gate_up.astype(np.float64), 2, axis=1)
    expected = gate / (1 + np.exp(-gate)) * up
    for runner in (CASE.kernel(), CASE.meaning()):
        np.testing.assert_allclose(runner(gate_up=gate_up)[0], expected, **TOLERANCES["float32"])


def test_far_out_gates_are_numbers() -> None:
    gate_up = np.array([[100.0, -100.0, 1e30, -1e30, 0.0, 1, 1, 1, 1, 1]], np.float32)
    expected = np.array([[100.0, 0, 1e30, 0, 0]], np.float32)
    np.testing.assert_allclose(CASE.kernel()(gate_up=gate_up)[0], expected, rtol=1e-6, atol=1e-34)


def test_a_row_has_the_same_bits_in_any_number_of_rows() -> None:
    gate_up = np.random.default_rng(0).standard_normal((40, 66), np.float32)
    kernel = CASE.kernel()
    together = kernel(gate_up=gate_up)[0]
    for first, last in ((0, 1), (3, 9), (11, 40)):
        assert bits_of(kernel(gate_up=gate_up[first:last])[0]) == bits_of(together[first:last])


def test_an_odd_axis_is_refused() -> None:
    with pytest.raises(Exception, match="odd"):
        CASE.kernel()(gate_up=np.zeros((1, 3), np.float32))
