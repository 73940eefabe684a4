"""Every instruction set that this machine has: the tests of all kernels again, each level in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.plugins.native.library import isa_name

LEVELS = ("portable", "avx2", "avx512", "amx")
FOLDER = Path(__file__).parent
KERNELS = (
    "test_gated_linear.py",
    "test_linear.py",
    "test_paged_attention.py",
    "test_paged_attention_bits.py",
    "test_residual_norm.py",
    "test_swiglu.py",
)
SAMPLER = FOLDER.parent / "runtime" / "test_sample.py"


@pytest.mark.parametrize("level", LEVELS[: LEVELS.index(isa_name())])
def test_the_kernels_pass_on_lower_levels(level: str) -> None:
    """The best level runs in this process already."""
    environment = {**os.environ, "PACELINE_ISA": level}
    name = "from paceline.plugins.native.library import isa_name; print(isa_name())"
    assert (
        subprocess.run([sys.executable, "-c", name], env=environment, capture_output=True, text=True).stdout
        == f"{level}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", *(str(FOLDER / name) for name in KERNELS), str(SAMPLER)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=FOLDER.parent.parent,
    )
    assert done.returncode == 0, done.stdout[-3000:]
