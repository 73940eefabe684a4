"""weight_formats: bytes of one matrix, by hand."""

import pytest

from paceline.passes.number_formats import FORMATS
from paceline.plugins.linear import schema
from paceline.toolchain.weight_formats import CPU_KERNELS, SMALLER_ON_CPU, engine_bits, packed_bytes, stored_bytes


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fp32", 128 * 48 * 4),
        ("bf16", 128 * 48 * 2),
        ("fp16", 128 * 48 * 4),  # the CPU has no float16 kernel
        ("fp8", 128 * 48 * 2 + 40 * 4),
        ("int8", 128 * 48 + 40 * 4),
        ("int8_rows16", 128 * 48 + 40 * 4),
        ("int8_weight_only", 128 * 48 * 2),  # widened when the engine is written
        ("int4_weight_only", 128 * 48 * 2),
    ],
)
def test_an_engine_pads_to_64_rows_and_16_columns(name: str, expected: int) -> None:
    assert packed_bytes(100, 40, name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fp32", 16000),
        ("bf16", 8000),
        ("fp16", 8000),
        ("fp8", 4000 + 40 * 4),
        ("int8", 4000 + 40 * 4),
        ("int8_weight_only", 4000 + 2 * 40 * 4),  # 100 rows are two blocks of 64
        ("int4_weight_only", 2000 + 2 * 40 * 4),
    ],
)
def test_a_portable_graph_pads_nothing(name: str, expected: int) -> None:
    assert stored_bytes(100, 40, name, block_size=64) == expected


def test_the_table_covers_every_format_and_names_kernels_that_exist() -> None:
    assert set(CPU_KERNELS) == set(FORMATS)
    assert set(CPU_KERNELS.values()) <= set(schema.FORMATS)


def test_what_saves_memory_does_so_in_this_order() -> None:
    bits = [engine_bits(name) for name in SMALLER_ON_CPU]
    assert bits == sorted(set(bits), reverse=True)
