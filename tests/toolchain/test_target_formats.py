"""check_target_formats: what a target cannot run is refused by name."""

import pytest

from paceline.passes.number_formats import FORMATS
from paceline.toolchain.errors import RecipeError
from paceline.toolchain.target_formats import check_target_formats


def test_the_cpu_runs_all() -> None:
    check_target_formats("cpu", None, FORMATS)


@pytest.mark.parametrize(
    ("kind", "sm", "name", "message"),
    [
        ("tensorrt", 80, "fp8", "fp8 on tensorrt SM 80; needed: SM 89 or newer for fp8; do: take bf16 there"),
        ("tensorrt-rtx", 120, "int8_rows16", "int8_rows16 on tensorrt-rtx SM 120; needed: a format that GPUs multiply"),
        ("abacus", None, "bf16", "needed: a target out of cpu, tensorrt, tensorrt-rtx"),
        ("cpu", None, "int3", "needed: a format out of fp32, bf16"),
    ],
)
def test_what_a_target_lacks_is_named(kind: str, sm: int | None, name: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        check_target_formats(kind, sm, ["bf16", name])


def test_newer_chips_run_fp8() -> None:
    for sm in (89, 90, 120):
        check_target_formats("tensorrt", sm, ["fp8", "int8", "int4_weight_only"])
