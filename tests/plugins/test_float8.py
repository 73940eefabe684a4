"""E4M3 in the attention kernel: every number that a cache can hold, as torch casts it and back."""

import ml_dtypes
import numpy as np
import torch
from attention_case import K_SCALE, PAGE, Layer, case_of, make_step


def test_what_is_written_into_pages_is_torchs_cast() -> None:
    """Keys from 1e-5 to beyond the largest number, through one page of one head."""
    layer = Layer(heads=1, kv_heads=1, head_dim=512, rotary_dim=0, dtype=ml_dtypes.float8_e4m3fn)
    rng = np.random.default_rng(0)
    for seed in range(4):
        step = make_step(layer, [(0, PAGE)], seed=seed, num_pages=1)
        keys = (rng.choice([-1, 1], (PAGE, 512)) * np.exp(rng.uniform(-11, 3, (PAGE, 512)))).astype(np.float32)
        _, pages = case_of(layer).kernel()(**{**step.arrays, "k": keys})
        steps = torch.from_numpy(keys / K_SCALE).clamp(-448, 448).to(torch.float8_e4m3fn).float().numpy()
        found = pages.reshape(2, 512, PAGE)[0].T.astype(np.float32)
        np.testing.assert_array_equal(found, steps)


def test_every_number_of_the_format_is_read_as_it_is() -> None:
    """One key each, all scores equal: the result is the mean of the values, so a value alone comes out as it is."""
    layer = Layer(heads=1, kv_heads=1, head_dim=16, rotary_dim=0, dtype=ml_dtypes.float8_e4m3fn)
    codes = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    finite = codes[np.isfinite(codes.astype(np.float32))].astype(np.float32)
    kernel = case_of(layer).kernel()
    for first in range(0, len(finite), 16):
        values = np.resize(finite[first : first + 16], 16)
        step = make_step(layer, [(0, 1)])
        scale = step.arrays["v_scale"]
        out, _ = kernel(**{**step.arrays, "v": (values * scale)[None].astype(np.float32)})
        np.testing.assert_allclose(out[0], values * scale, rtol=1e-6)
