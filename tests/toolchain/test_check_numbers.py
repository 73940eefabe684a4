"""check_numbers: weights that are no numbers, or nothing but zeros, are refused by name, count and place."""

import tracemalloc

import numpy as np
import pytest

from paceline.toolchain.check_numbers import BLOCK, ROWS_BYTES, check_numbers
from paceline.toolchain.errors import CheckpointError


class Weights:
    """A checkpoint of these tensors."""

    def __init__(self, **tensors: np.ndarray) -> None:
        self.tensors = tensors

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.tensors))

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape

    def read(self, name: str) -> np.ndarray:
        assert self.tensors[name].nbytes <= ROWS_BYTES, "a large tensor is read in parts"
        return self.tensors[name]

    def read_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        return self.tensors[name][start:stop]


def matrix(rows: int = 6, columns: int = 4, **numbers: float) -> np.ndarray:
    """Ones, with `numbers` put in places written r1c2."""
    made = np.ones((rows, columns), np.float32)
    for place, number in numbers.items():
        row, column = place.removeprefix("r").split("c")
        made[int(row), int(column)] = number
    return made


@pytest.mark.parametrize(
    ("weights", "found"),
    [
        (matrix(r1c2=np.nan), "w [6, 4] has 1 numbers that are not finite, the first (NaN) at [1, 2]"),
        (matrix(r5c3=np.inf), "w [6, 4] has 1 numbers that are not finite, the first (infinite) at [5, 3]"),
        (
            matrix(r2c0=-np.inf, r4c1=np.nan),
            "w [6, 4] has 2 numbers that are not finite, the first (infinite) at [2, 0]",
        ),
        (np.full(3, np.nan, np.float32), "w [3] has 3 numbers that are not finite, the first (NaN) at [0]"),
        (np.zeros((3, 2), np.float32), "w [3, 2] is all zeros"),
    ],
)
def test_bad_numbers_are_named_counted_and_located(weights: np.ndarray, found: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        check_numbers(Weights(good=matrix(), w=weights))
    assert caught.value.found == found


@pytest.mark.parametrize("place", [0, BLOCK - 1, BLOCK, 2 * BLOCK + 5])
def test_a_single_number_in_any_block_is_found(place: int) -> None:
    weights = np.ones((3 * BLOCK // 64, 64), np.float32)
    weights.reshape(-1)[place] = np.nan
    with pytest.raises(CheckpointError) as caught:
        check_numbers(Weights(w=weights))
    assert caught.value.found.endswith(f"at [{place // 64}, {place % 64}]")


@pytest.mark.parametrize("row", [0, 4095, 4096, 8200])
def test_a_number_in_any_part_of_a_large_tensor_is_found(row: int) -> None:
    weights = np.ones((8201, ROWS_BYTES // 4 // 4096), np.float32)  # 4096 rows are one part
    weights[row, 7] = np.inf
    with pytest.raises(CheckpointError) as caught:
        check_numbers(Weights(w=weights))
    assert caught.value.found.endswith(f"has 1 numbers that are not finite, the first (infinite) at [{row}, 7]")


def test_rows_of_zeros_are_kept() -> None:
    """They pad vocabularies; a bias or Gemma's norm may be zero altogether."""
    padded = matrix()
    padded[4:] = 0
    check_numbers(Weights(embedding=padded, bias=np.zeros(4, np.float32), nothing=np.zeros((0, 4), np.float32)))


def test_many_bad_tensors_are_counted() -> None:
    tensors = {f"w{number}": np.full(2, np.inf, np.float32) for number in range(7)}
    with pytest.raises(CheckpointError, match=r"w4 .*; and 2 more tensors"):
        check_numbers(Weights(good=matrix(), **tensors))


def test_looking_takes_no_memory_to_speak_of() -> None:
    weights = Weights(w=np.ones((8192, 1024), np.float32))  # 32 MB
    tracemalloc.start()
    check_numbers(weights)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
