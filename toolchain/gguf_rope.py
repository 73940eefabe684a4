"""Llama 3's RoPE scaling, recovered from the only trace that a GGUF file keeps of it.

llama.cpp's converter turns the four numbers of `rope_scaling` into one divisor per frequency and stores those
(rope_freqs.weight). The divisors flow in, the four numbers flow out, proved by computing the divisors from them again.
Handing the divisors to the model was the alternative and lost: no configuration of transformers holds them.
"""

import math

import numpy as np
import numpy.typing as npt

from .errors import ArchitectureError

__all__ = ["llama3_divisors", "llama3_scaling"]

LOW, HIGH = 1.0, 4.0  # of every Llama 3.x; the other two numbers differ between them
TOLERANCE = 1e-4  # relative; the divisors are float32, their steps from frequency to frequency are 30 % and more


def llama3_divisors(rope_theta: float, num: int, factor: float, original_length: int) -> npt.NDArray[np.float64]:
    """What each of `num` rotary frequencies is divided by.

    Source: "The Llama 3 Herd of Models" (2024) and its reference code, `apply_scaling`.
    """
    wavelengths = 2 * math.pi * rope_theta ** (np.arange(num) / num)
    smooth = np.clip((original_length / wavelengths - LOW) / (HIGH - LOW), 0.0, 1.0)
    return np.asarray(1.0 / ((1.0 - smooth) / factor + smooth))


def llama3_scaling(divisors: npt.NDArray[np.float32], rope_theta: float) -> dict[str, object]:
    """The `rope_scaling` of a configuration that divides frequencies by `divisors` [head_dim / 2].

    Raises: ArchitectureError where they are not Llama 3's.
    """
    given = divisors.astype(np.float64).reshape(-1)
    factor = round(float(given.max(initial=1.0)), 3)  # a float32 next to a number that people write
    between = np.flatnonzero((given > 1.0 + TOLERANCE) & (given < factor * (1.0 - TOLERANCE)))
    if between.size:
        place = int(between[0])
        smooth = (1.0 / given[place] - 1.0 / factor) / (1.0 - 1.0 / factor)
        wavelength = 2 * math.pi * rope_theta ** (place / given.size)
        original_length = round(wavelength * (smooth * (HIGH - LOW) + LOW))
        if np.allclose(llama3_divisors(rope_theta, given.size, factor, original_length), given, rtol=TOLERANCE, atol=0):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": LOW,
                "high_freq_factor": HIGH,
                "original_max_position_embeddings": original_length,
            }
    raise ArchitectureError(
        f"rope_freqs.weight divides frequencies by 1 to {factor:g} in a way that is not Llama 3's",
        needed="divisors that a configuration can express",
        do="give the original Hugging Face folder",
    )
