"""The gated linear ops: kernels against NumPy and their meaning, a row's bits in any company, wrong shapes refused."""

import numpy as np
import pytest
from kernel_case import KernelCase, bits_of
from test_linear import FORMATS, arrays_for, oracle
from test_linear import case_of as plain_case_of
from tolerances import TOLERANCES


def case_of(op_type: str, weight: np.ndarray) -> KernelCase:
    plain = plain_case_of(op_type, weight)
    return KernelCase(f"Gated{op_type}", plain.attributes, plain.constants, plain.examples)


@pytest.mark.parametrize("op_type", FORMATS)
@pytest.mark.parametrize(("k", "n"), [(576, 3072), (100, 64), (64, 32), (1, 32)])
def test_kernel_and_meaning_agree_with_numpy(op_type: str, k: int, n: int) -> None:
    x, weight, _ = arrays_for(k, n, rows=9)
    gate, up = np.split(oracle(op_type, x, weight), 2, axis=1)
    expected = gate / (1 + np.exp(-gate)) * up
    for runner in (case_of(op_type, weight).kernel(), case_of(op_type, weight).meaning()):
        np.testing.assert_allclose(runner(x=x)[0], expected, **TOLERANCES["float32"])


@pytest.mark.parametrize("op_type", FORMATS)
def test_a_row_has_the_same_bits_in_any_number_of_rows(op_type: str) -> None:
    x, weight, _ = arrays_for(128, 320, rows=70, seed=5)
    kernel = case_of(op_type, weight).kernel()
    together = kernel(x=x)[0]
    for count in (*range(1, 14), 40, 49, 70):
        for first in (0, 3, 70 - count):
            part = x[first : first + count]
            assert bits_of(kernel(x=part)[0]) == bits_of(together[first : first + len(part)]), f"{count} from {first}"


@pytest.mark.parametrize("op_type", FORMATS)
def test_halves_that_are_no_whole_panels_are_refused(op_type: str) -> None:
    _, weight, _ = arrays_for(32, 48, rows=1)
    with pytest.raises(Exception, match="whole panels"):
        case_of(op_type, weight).kernel()


@pytest.mark.parametrize("op_type", FORMATS)
def test_no_rows_are_no_rows(op_type: str) -> None:
    _, weight, _ = arrays_for(32, 64, rows=1)
    assert case_of(op_type, weight).kernel()(x=np.zeros((0, 32), np.float32))[0].shape == (0, 32)
