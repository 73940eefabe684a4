"""The AMX kernel's index arithmetic, on tiles emulated in plain C++: what a machine without AMX can check of it."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from paceline.plugins.linear.pack import pack_bf16, pack_int8, quantize_int8
from paceline.plugins.native.library import isa_name

HERE = Path(__file__).parent
SOURCES = HERE.parent.parent / "plugins" / "linear"

pytestmark = pytest.mark.skipif(
    isa_name() not in ("avx512", "amx"), reason="only the tiles are emulated: what surrounds them is AVX-512"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++") or shutil.which("c++")
    assert compiler, "building paceline needs a C++ compiler, and so does this test"
    built = tmp_path_factory.mktemp("amx") / "amx.so"
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-DPACELINE_EMULATE_TILES", f"-I{SOURCES}"]
    subprocess.run([compiler, *flags, str(HERE / "amx_check.cpp"), "-o", str(built)], check=True, timeout=300)
    return ctypes.CDLL(str(built))


def sums(library: ctypes.CDLL, is_int8: int, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """[rows, panels * 16] out of x [rows, words * 4 bytes] and packed weights."""
    panels, words = weights.shape[:2]
    out = np.full((len(x), panels * 16), -1, np.int32 if is_int8 else np.float32)
    library.amx_sums(
        is_int8,
        ctypes.c_void_p(x.ctypes.data),
        ctypes.c_size_t(len(x)),
        ctypes.c_void_p(weights.ctypes.data),
        ctypes.c_size_t(words),
        ctypes.c_size_t(panels),
        ctypes.c_void_p(out.ctypes.data),
    )
    return out


@pytest.mark.parametrize("columns", [16, 32, 48, 80])
@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 31, 32, 33, 40, 64])
def test_sums_are_those_of_numpy(library: ctypes.CDLL, rows: int, columns: int) -> None:
    rng = np.random.default_rng(rows)
    weight = rng.standard_normal((192, columns)).astype(np.float32)
    x = rng.standard_normal((rows, 192)).astype(ml_dtypes.bfloat16)
    expected = x.astype(np.float64) @ weight.astype(ml_dtypes.bfloat16).astype(np.float64)
    np.testing.assert_allclose(sums(library, 0, x, pack_bf16(weight)), expected, rtol=1e-4, atol=1e-4)
    steps = rng.integers(1, 256, (rows, 192)).astype(np.uint8)
    exact = steps.astype(np.int64) @ quantize_int8(weight)[0].astype(np.int64)
    np.testing.assert_array_equal(sums(library, 1, steps, pack_int8(weight)[0]), exact)


def test_a_row_has_the_same_bits_in_any_number_of_rows(library: ctypes.CDLL) -> None:
    rng = np.random.default_rng(1)
    weights = pack_bf16(rng.standard_normal((128, 48)).astype(np.float32))
    x = rng.standard_normal((50, 128)).astype(ml_dtypes.bfloat16)
    together = sums(library, 0, x, weights)
    for first, last in ((0, 1), (5, 21), (10, 43), (49, 50)):
        np.testing.assert_array_equal(sums(library, 0, x[first:last].copy(), weights), together[first:last])
