"""PagedAttention: the meaning against NumPy, and the kernel against NumPy, for every kind of layer."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from attention_case import LAYERS, Layer, case_of, make_step, oracle
from kernel_case import KernelCase, bits_of
from tolerances import TOLERANCES

MIX = [(33, 1), (11, 5), (3, 40), (0, 17), (15, 1), (16, 1), (14, 3), (0, 1)]


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn], ids=["f32", "bf16", "fp8"])
def test_kernel_and_meaning_agree_with_numpy(layer: Layer, dtype: type) -> None:
    layer = replace(layer, dtype=dtype)
    step = make_step(layer, MIX)
    expected, pool = oracle(layer, step)
    results = {"meaning": case_of(layer).meaning(), "kernel": case_of(layer).kernel()}
    for name, runner in results.items():
        out, pages = runner(**step.arrays)
        assert_close(out, expected, dtype, name)
        assert bits_of(pages) == bits_of(pool.astype(dtype)), name


def assert_close(out: np.ndarray, expected: np.ndarray, dtype: type, name: str) -> None:
    """As close as float32; with a bf16 cache one weight in thousands may have been rounded to the other side."""
    if dtype is not np.float32:
        beyond = ~np.isclose(out, expected, **TOLERANCES["float32"])
        assert beyond.mean() < 0.01, f"{name}: {beyond.mean():.2%} of the elements"
    room = TOLERANCES["float32" if dtype is np.float32 else "bfloat16_cache"]
    np.testing.assert_allclose(out, expected, **room, err_msg=name)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, 47, 48, 49])
def test_page_borders(length: int) -> None:
    layer = Layer(heads=2, kv_heads=1, head_dim=16)
    for requests in ([(0, length)], [(length - 1, 1)], [(length, 2)]):
        step = make_step(layer, requests, seed=length)
        expected, _ = oracle(layer, step)
        np.testing.assert_allclose(case_of(layer).kernel()(**step.arrays)[0], expected, **TOLERANCES["float32"])


@pytest.mark.parametrize("score", [0.0, 1e-3, -0.34, -0.35, -1.03, -2.4, 3.1, -20.0, -80.0, 85.0])
def test_weights_are_exact_to_the_last_places(score: float) -> None:
    """Two keys, one with this score, the other with 0: the result is a sigmoid."""
    layer = Layer(heads=1, kv_heads=1, head_dim=16, rotary_dim=0)
    step = make_step(layer, [(1, 1)])
    arrays = {name: np.zeros_like(step.arrays[name]) for name in ("q", "k", "v", "kv_pages")}
    arrays["q"][0, 0] = score * 4  # the layer's scale is a quarter
    arrays["k"][0, 0] = arrays["v"][0, 0] = 1
    out, _ = case_of(layer).kernel()(**{**step.arrays, **arrays})
    # 2^-24 a rounding, and the exponent carries its own as often as it is large
    np.testing.assert_allclose(out[0, 0], 1 / (1 + np.exp(-score)), rtol=(4 + 2 * abs(score)) * 2**-24)


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_attention_means_the_same_with_and_without_pages(layer: Layer) -> None:
    step = make_step(layer, [(0, 37)])
    paged, _ = case_of(layer).meaning()(**step.arrays)
    arrays = {name: step.arrays[name] for name in ("q", "k", "v", "cos_sin", "sinks") if name in step.arrays}
    attributes = {name: value for name, value in layer.attributes().items() if name != "page_size"}
    out = KernelCase("Attention", attributes, {}, arrays).meaning()(**arrays)[0]
    np.testing.assert_allclose(out, paged, **TOLERANCES["float32"])


@pytest.mark.parametrize("layer", [LAYERS["plain"], LAYERS["nine heads on three"], LAYERS["all at once"]])
def test_three_tensors_and_one_tensor_are_the_same_bits(layer: Layer) -> None:
    step = make_step(layer, MIX)
    packed = {name: array for name, array in step.arrays.items() if name not in ("k", "v")}
    packed["q"] = np.concatenate([step.arrays[name] for name in ("q", "k", "v")], axis=1)
    case = KernelCase("PagedAttention", layer.attributes(), {}, packed)
    apart, together = case_of(layer).kernel()(**step.arrays), case.kernel()(**packed)
    for one, other in zip(apart, together, strict=True):
        assert one.shape == other.shape
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(case.meaning()(**packed)[0], apart[0], **TOLERANCES["float32"])
    with pytest.raises(Exception, match="in one tensor"):
        case.kernel()(**{**packed, "q": packed["q"][:, :-16]})
