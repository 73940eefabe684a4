"""How far two computations of the same thing may differ, by number format: one table, each row with its reason.

Keywords fit `numpy.testing.assert_allclose`. A test that needs more room than its row gives has found something.
"""

__all__ = ["TOLERANCES"]

TOLERANCES: dict[str, dict[str, float]] = {
    # sums of a few thousand products in another order: about sqrt(n) * 2^-24, values of order 1 to 10
    "float32": {"rtol": 2e-5, "atol": 2e-5},
    # attention over a bf16 cache: a weight that two computations round to different sides moves by 2^-8 of its share
    "bfloat16_cache": {"rtol": 4e-3, "atol": 4e-3},
    # both operands rounded to 8 bits of mantissa: 2^-9 each, averaged over a dot product
    "bfloat16": {"rtol": 2e-2, "atol": 2e-2},
    # weights to 1/127 of their column's, rows to 1/127 of their own maximum
    "int8": {"rtol": 6e-2, "atol": 6e-2},
}
