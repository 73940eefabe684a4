"""sliced_tensor: whatever the size of the slices, the bytes are those of the whole."""

import io
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from paceline.passes import sliced_tensor
from paceline.passes.sliced_tensor import SlicedTensor, slice_of

ARRAYS = {
    "vector": (np.arange(23, dtype=np.float32), 0),
    "rows": (np.arange(35, dtype=np.float32).reshape(7, 5), 0),
    "columns": (np.arange(35, dtype=np.float32).reshape(7, 5), 1),
    "one column": (np.arange(6, dtype=np.int8).reshape(6, 1), 1),
    "panels": (np.arange(96, dtype=np.int8).reshape(3, 4, 4, 2), 0),
    "int4 columns": (np.arange(-8, 8).reshape(2, 8).astype(ml_dtypes.int4), 1),
    "int4, rows of half a byte more": (np.arange(-7, 8).reshape(3, 5).astype(ml_dtypes.int4), 1),
    "bf16 columns": (np.arange(12).reshape(3, 4).astype(ml_dtypes.bfloat16), 1),
}


def sliced(array: np.ndarray, axis: int, elements_each: int | None = None) -> tuple[SlicedTensor, list[int]]:
    """A tensor of `array`, and the sizes of the slices that it asked for."""
    sizes: list[int] = []

    def make(start: int, stop: int) -> np.ndarray:
        sizes.append(stop - start)
        return array[start:stop] if axis == 0 else array[:, start:stop]

    dtype = ir.DataType.from_numpy(array.dtype)
    return SlicedTensor("w", dtype, array.shape, make, axis=axis, elements_each=elements_each), sizes


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("elements", [1, 8, 13, 1 << 20])
def test_the_file_holds_the_array(name: str, elements: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array, axis = ARRAYS[name]
    monkeypatch.setattr(sliced_tensor, "SLICE_ELEMENTS", elements)
    tensor, _ = sliced(array, axis)
    expected = ir.Tensor(array).tobytes()
    with (tmp_path / "file").open("wb") as file:
        file.write(b"before")
        tensor.tofile(file)
        file.write(b"after")
    assert (tmp_path / "file").read_bytes() == b"before" + expected + b"after"
    np.testing.assert_array_equal(tensor.numpy(), array)
    assert tensor.tobytes() == expected


@pytest.mark.parametrize("axis", [0, 1])
def test_a_stream_without_a_descriptor_is_written_too(axis: int) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    stream = io.BytesIO()
    sliced(array, axis)[0].tofile(stream)
    assert stream.getvalue() == array.tobytes()


def test_no_slice_reads_more_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scale is one number a column and costs a column: by its own size, all columns would be read at once."""
    monkeypatch.setattr(sliced_tensor, "SLICE_ELEMENTS", 100)
    scales, sizes = sliced(np.zeros(50, np.float32), 0, elements_each=40)
    with (tmp_path / "file").open("wb") as file:
        scales.tofile(file)
    assert max(sizes) == 2
    assert sum(sizes) == 50


def test_a_slice_that_lied_about_its_shape_is_found_out() -> None:
    tensor = SlicedTensor("w", ir.DataType.FLOAT, (4, 2), lambda start, stop: np.zeros((1, 2), np.float32))
    with pytest.raises(AssertionError, match=r"w was announced as \[4, 2\] and came out as \[1, 2\]"):
        tensor.numpy()


@pytest.mark.parametrize("axis", [0, 1])
def test_any_tensor_can_be_asked_for_a_part(axis: int) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    wanted = array[1:3] if axis == 0 else array[:, 1:3]
    tensors = [ir.Tensor(array), sliced(array, 0)[0], sliced(array, 1)[0]]
    for tensor in tensors:
        np.testing.assert_array_equal(slice_of(tensor, axis, 1, 3), wanted)
