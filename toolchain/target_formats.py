"""Which number formats a target can run: asked when a recipe is read, not when an engine fails.

A target's kind, its compute capability where it has one, and the formats that a recipe asks for flow in; nothing flows
out, or a `RecipeError` that names format, target and what would do.

    kind            runs
    cpu             all: what has no kernel of its own is computed on one that holds its numbers exactly
    tensorrt        fp8 from SM 89 on, int8 on rows of 16 bits never
    tensorrt-rtx    as tensorrt

Source: https://docs.nvidia.com/deeplearning/tensorrt/latest/getting-started/support-matrix.html (FP8 needs compute
capability 8.9); NVIDIA's hardware multiplies int8 with int8 only.
"""

from collections.abc import Collection

from ..passes.number_formats import FORMATS, HIGHER
from .errors import RecipeError

__all__ = ["check_target_formats"]

LEAST_SM = {"fp8": 89}
NO_GPU = ("int8_rows16",)
KINDS = ("cpu", "tensorrt", "tensorrt-rtx")


def check_target_formats(kind: str, sm: int | None, formats: Collection[str]) -> None:
    """Raise `RecipeError` for the first of `formats` that the target does not run; `sm` is 80 for 8.0."""
    for name in sorted(set(formats)):
        fault = _fault(kind, sm, name)
        if fault:
            raise RecipeError(
                f"quantization asks for {name} on {kind}{'' if sm is None else f' SM {sm}'}",
                needed=fault,
                do=f"take {HIGHER.get(name, 'bf16')} there, or another target",
            )


def _fault(kind: str, sm: int | None, name: str) -> str | None:
    if kind not in KINDS:
        return f"a target out of {', '.join(KINDS)}"
    if name not in FORMATS:
        return f"a format out of {', '.join(FORMATS)}"
    if kind == "cpu":
        return None
    if name in NO_GPU:
        return "a format that GPUs multiply: int8 rows and int8 weights, or 16 bits"
    least = LEAST_SM.get(name, 0)
    return f"SM {least} or newer for {name}" if sm is not None and sm < least else None
