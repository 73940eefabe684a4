"""Layers, steps and the NumPy oracle of attention over pages, for the tests of PagedAttention.

In: a layer's shape and a mix of requests. Out: the arrays of one step, parts of it as steps of their own, and what
attention means, row by row in float64.
"""

import itertools
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from kernel_case import KernelCase

__all__ = ["LAYERS", "NUM_PAGES", "PAGE", "Layer", "Step", "case_of", "make_step", "oracle", "part_of"]

PAGE = 16
K_SCALE, V_SCALE = np.float32(0.02), np.float32(0.013)  # of a cache in E4M3
NUM_PAGES = 40


@dataclass(frozen=True)
class Layer:
    """A layer's shape; `rotary_dim` None turns whole heads, 0 none."""

    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    window: int = 0
    softcap: float = 0.0
    rotary_dim: int | None = None
    interleaved: int = 0
    has_sinks: bool = False
    dtype: type = np.float32

    @property
    def is_scaled(self) -> bool:
        return self.dtype is ml_dtypes.float8_e4m3fn

    @property
    def operand(self) -> type:
        """What queries and weights are rounded to."""
        return ml_dtypes.bfloat16 if self.is_scaled else self.dtype

    def scales(self) -> tuple[np.float32, np.float32]:
        """What the cache's keys and values are to be multiplied with."""
        return (K_SCALE, V_SCALE) if self.is_scaled else (np.float32(1), np.float32(1))

    @property
    def turning(self) -> int:
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    def attributes(self) -> dict[str, float]:
        return {
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "scale": self.head_dim**-0.5,
            "window": self.window,
            "softcap": self.softcap,
            "layer": 0,
            "rotary_dim": self.turning,
            "interleaved": self.interleaved,
            "page_size": PAGE,
        }


LAYERS = {
    "plain": Layer(),
    "nine heads on three": Layer(heads=9, kv_heads=3),
    "eight heads on one": Layer(heads=8, kv_heads=1, head_dim=96),
    "each its own": Layer(heads=3, kv_heads=3, head_dim=80),
    "128": Layer(head_dim=128),
    "256": Layer(heads=2, kv_heads=1, head_dim=256),
    "16": Layer(head_dim=16),
    "window": Layer(window=7),
    "window of a page": Layer(window=16),
    "softcap": Layer(softcap=5.0),
    "sinks": Layer(has_sinks=True),
    "partial rotary": Layer(rotary_dim=32),
    "interleaved": Layer(interleaved=1),
    "no rotary": Layer(rotary_dim=0),
    "all at once": Layer(heads=8, kv_heads=2, window=19, softcap=8.0, rotary_dim=48, interleaved=1, has_sinks=True),
}


@dataclass(frozen=True)
class Step:
    """Arrays of one step, and for each request its rows."""

    arrays: dict[str, np.ndarray]
    rows: tuple[slice, ...]


def make_step(layer: Layer, requests: list[tuple[int, int]], seed: int = 0, num_pages: int = NUM_PAGES) -> Step:
    """`requests` are (tokens in the cache already, new tokens)."""
    rng = np.random.default_rng(seed)
    total = sum(new for _, new in requests)
    lengths = [past + new for past, new in requests]
    pages = iter(rng.permutation(num_pages))
    table = np.zeros((len(requests), max(-(-length // PAGE) for length in lengths)), np.int32)
    for row, length in zip(table, lengths, strict=True):
        row[: -(-length // PAGE)] = [next(pages) for _ in range(-(-length // PAGE))]
    starts = np.cumsum([0, *(new for _, new in requests)]).astype(np.int32)
    arrays = {
        "q": rng.standard_normal((total, layer.heads * layer.head_dim), np.float32),
        "k": rng.standard_normal((total, layer.kv_heads * layer.head_dim), np.float32),
        "v": rng.standard_normal((total, layer.kv_heads * layer.head_dim), np.float32),
        "kv_pages": (
            rng.standard_normal((2, num_pages, layer.kv_heads, PAGE * layer.head_dim)) / layer.scales()[0]
        ).astype(layer.dtype),
        "page_table": table,
        "query_start": starts,
        "context_len": np.array(lengths, np.int32),
    }
    if layer.turning:
        angles = rng.uniform(0, 6, (total, layer.turning // 2))
        arrays["cos_sin"] = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    if layer.has_sinks:
        arrays["sinks"] = rng.standard_normal(layer.heads).astype(np.float32)
    if layer.is_scaled:
        arrays["k_scale"], arrays["v_scale"] = (scale.reshape(1) for scale in layer.scales())
    return Step(arrays, tuple(slice(a, b) for a, b in itertools.pairwise(starts)))


def part_of(step: Step, request: int, first: int, last: int) -> dict[str, np.ndarray]:
    """Rows [first, last) of one request as a step of its own."""
    rows = step.rows[request]
    arrays = dict(step.arrays)
    for name in ("q", "k", "v", "cos_sin"):
        if name in arrays:
            arrays[name] = arrays[name][rows][first:last]
    left = (rows.stop - rows.start) - last
    arrays["page_table"] = arrays["page_table"][request : request + 1]
    arrays["query_start"] = np.array([0, last - first], np.int32)
    arrays["context_len"] = arrays["context_len"][request : request + 1] - left
    return arrays


def case_of(layer: Layer) -> KernelCase:
    return KernelCase("PagedAttention", layer.attributes(), {}, make_step(layer, [(0, 1)]).arrays)


def oracle(layer: Layer, step: Step) -> tuple[np.ndarray, np.ndarray]:
    """Row by row, head by head: rotated in float32, whose rounding says what the cache holds; the rest in float64."""
    a = step.arrays
    dim, group = layer.head_dim, layer.heads // layer.kv_heads
    k_scale, v_scale = layer.scales()
    pool = step.arrays["kv_pages"].astype(np.float64)
    keys = pool[0].reshape(-1, layer.kv_heads, dim, PAGE).transpose(0, 3, 1, 2).copy()
    values = pool[1].reshape(-1, layer.kv_heads, PAGE, dim).transpose(0, 2, 1, 3).copy()
    out = np.zeros(a["q"].shape)
    for request, rows in enumerate(step.rows):
        table, length = step.arrays["page_table"][request], int(a["context_len"][request])
        places = [(row, length - (rows.stop - row)) for row in range(rows.start, rows.stop)]
        for row, position in places:
            page, slot = table[position // PAGE], position % PAGE
            keys[page, slot] = (turned(layer, a, "k", row) / k_scale).astype(layer.dtype)
            values[page, slot] = (a["v"][row].reshape(-1, dim) / v_scale).astype(layer.dtype)
        all_keys, all_values = (
            keys[table].reshape(-1, layer.kv_heads, dim) * float(k_scale),
            values[table].reshape(-1, layer.kv_heads, dim) * float(v_scale),
        )
        for row, position in places:
            first = max(0, position - layer.window + 1) if layer.window else 0
            query = turned(layer, a, "q", row).astype(layer.operand).astype(np.float64)
            for head in range(layer.heads):
                scores = all_keys[first : position + 1, head // group] @ query[head] * dim**-0.5
                if layer.softcap:
                    scores = layer.softcap * np.tanh(scores / layer.softcap)
                powers = scores * np.log2(np.e)
                shift = np.ceil(powers.max())
                weights = np.exp2(powers - shift).astype(np.float32).astype(layer.operand).astype(np.float64)
                sink = np.exp2(float(a["sinks"][head]) * np.log2(np.e) - shift) if layer.has_sinks else 0.0
                mixed = weights @ all_values[first : position + 1, head // group] / (weights.sum() + sink)
                out[row, head * dim : (head + 1) * dim] = mixed
    planes = keys.transpose(0, 2, 3, 1), values.transpose(0, 2, 1, 3)
    return out, np.stack([plane.reshape(pool.shape[1:]) for plane in planes])


def turned(layer: Layer, a: dict[str, np.ndarray], name: str, row: int) -> np.ndarray:
    heads = a[name][row].reshape(-1, layer.head_dim).copy()
    half = layer.turning // 2
    if not half:
        return heads
    cosine, sine = a["cos_sin"][row, :half], a["cos_sin"][row, half:]
    x, y = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if layer.interleaved else (slice(half), slice(half, 2 * half))
    before = heads.copy()
    heads[:, x] = before[:, x] * cosine - before[:, y] * sine
    heads[:, y] = before[:, y] * cosine + before[:, x] * sine
    return heads
