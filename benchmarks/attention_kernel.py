"""What the attention of one step costs: median milliseconds of all layers, for typical mixes of requests.

    python benchmarks/attention_kernel.py [--layers 30] [--heads 9] [--kv-heads 3] [--head-dim 64] [--threads 2]
                                          [--cache bfloat16] [--rounds 10] [--against OTHER.so]
                                          [--clock wall|processor]

One session holds one PagedAttention node a layer, each with a pool of its own as in a real model, bound in place.
`--against` measures a second build of the native library in the same rounds, turn by turn: on a shared machine only
such ratios mean anything. With --threads 1, --clock processor leaves out the time that other programs took.
PACELINE_ISA=avx2 (or portable) measures a lower instruction set.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from paceline.plugins import contract
from paceline.plugins.meanings import MEANINGS
from paceline.plugins.native.library import isa_name, library_path

CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
CACHES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
SPREAD = [50 + 450 * i // 7 for i in range(8)]

# name -> (tokens already cached, new rows) of each request
MIXES: dict[str, list[tuple[int, int]]] = {
    "1 request, 1 row at 500": [(500, 1)],
    "1 request, 1 row at 4000": [(4000, 1)],
    "8 requests, 1 row at 50..500": [(past, 1) for past in SPREAD],
    "8 requests, 5 rows at 50..500": [(past, 5) for past in SPREAD],
    "prefill 512": [(0, 512)],
    "prefill 128 at 1024": [(1024, 128)],
    "prefill 256 beside 7 x 1 row": [(0, 256), *((past, 1) for past in SPREAD[1:])],
}


@dataclass(frozen=True)
class Layers:
    """The attention layers of a model."""

    count: int
    heads: int
    kv_heads: int
    head_dim: int
    cache: np.dtype

    def model(self) -> bytes:
        """One node a layer; all read the same q, k, v and tables, each has its pool."""
        names = MEANINGS["PagedAttention"][0]
        shared = [name for name in names if name not in ("kv_pages", "sinks")]
        pool_type = helper.np_dtype_to_tensor_dtype(self.cache)
        nodes, inputs, outputs = [], [_value(name, _type_of(name), 2 - (name in FLAT)) for name in shared], []
        for i in range(self.count):
            pool_in, pool_out = contract.kv_pages_in(i), contract.kv_pages_out(i)
            own = [pool_in if name == "kv_pages" else name for name in names[:-1]]
            results = [f"out.{i}", pool_out]
            nodes.append(helper.make_node("PagedAttention", own, results, domain=contract.DOMAIN, **self._attributes()))
            inputs.append(_value(pool_in, pool_type, 4))
            outputs += [_value(f"out.{i}", onnx.TensorProto.FLOAT, 2), _value(pool_out, pool_type, 4)]
        graph = helper.make_graph(nodes, "attention", inputs, outputs)
        opsets = [helper.make_opsetid("", contract.OPSET_VERSION), helper.make_opsetid(contract.DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()

    def _attributes(self) -> dict[str, Any]:
        sizes = {"heads": self.heads, "kv_heads": self.kv_heads, "head_dim": self.head_dim, "rotary_dim": self.head_dim}
        return {**sizes, "scale": self.head_dim**-0.5, "page_size": contract.PAGE_SIZE}

    def step(self, requests: list[tuple[int, int]]) -> dict[str, np.ndarray]:
        """Random arrays of one step, pages scattered over the pool."""
        rng = np.random.default_rng(0)
        rows = sum(new for _, new in requests)
        lengths = np.array([past + new for past, new in requests], np.int32)
        pages = -(-lengths // contract.PAGE_SIZE)
        table = np.zeros((len(requests), pages.max()), np.int32)
        ids = iter(rng.permutation(pages.sum()))
        for row, count in zip(table, pages, strict=True):
            row[:count] = [next(ids) for _ in range(count)]
        pool = (2, int(pages.sum()), self.kv_heads, contract.PAGE_SIZE * self.head_dim)
        return {
            "q": rng.standard_normal((rows, self.heads * self.head_dim), np.float32),
            "k": rng.standard_normal((rows, self.kv_heads * self.head_dim), np.float32),
            "v": rng.standard_normal((rows, self.kv_heads * self.head_dim), np.float32),
            "page_table": table,
            "query_start": np.cumsum([0, *(new for _, new in requests)]).astype(np.int32),
            "context_len": lengths,
            "cos_sin": rng.uniform(-1, 1, (rows, self.head_dim)).astype(np.float32),
            **{
                contract.kv_pages_in(i): rng.standard_normal(pool, np.float32).astype(self.cache)
                for i in range(self.count)
            },
        }


FLAT = ("query_start", "context_len")


def _type_of(name: str) -> int:
    return onnx.TensorProto.INT32 if name in (*FLAT, "page_table") else onnx.TensorProto.FLOAT


def _value(name: str, element_type: int, rank: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type, [f"{name}_{axis}" for axis in range(rank)])


class Stepper:
    """One library's session; `time(arrays)` runs a step in place and returns its milliseconds."""

    def __init__(self, layers: Layers, library: Path, threads: int, clock: Callable[[], float]) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.force_spinning_stop", "1")  # one session's threads wait for the other
        options.register_custom_ops_library(str(library))
        self._clock = clock
        self._layers = layers
        self._session = ort.InferenceSession(layers.model(), options, providers=["CPUExecutionProvider"])

    def time(self, arrays: Mapping[str, np.ndarray], repeats: int) -> list[float]:
        binding = self._bind(arrays)
        laps = []
        for _ in range(repeats):
            begin = self._clock()
            self._session.run_with_iobinding(binding)
            laps.append(1e3 * (self._clock() - begin))
        return laps

    def _bind(self, arrays: Mapping[str, np.ndarray]) -> ort.IOBinding:
        binding = self._session.io_binding()
        for name, array in arrays.items():
            element_type = helper.np_dtype_to_tensor_dtype(array.dtype)
            binding.bind_input(name, "cpu", 0, element_type, array.shape, array.ctypes.data)
        for i in range(self._layers.count):
            pool = arrays[contract.kv_pages_in(i)]
            element_type = helper.np_dtype_to_tensor_dtype(pool.dtype)
            binding.bind_output(contract.kv_pages_out(i), "cpu", 0, element_type, pool.shape, pool.ctypes.data)
            binding.bind_output(f"out.{i}", "cpu")
        return binding


def measure(steppers: list[Stepper], arrays: Mapping[str, np.ndarray], rounds: int) -> list[list[float]]:
    """`rounds` x 5 steps of each stepper, turn by turn; the first round only warms up."""
    laps: list[list[float]] = [[] for _ in steppers]
    for round_index in range(rounds + 1):
        for stepper, taken in zip(steppers, laps, strict=True):
            fresh = stepper.time(arrays, repeats=5)
            if round_index:
                taken += fresh
    return laps


def main() -> None:
    """Print one line a mix: median and fastest step, and the ratio to the other library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 30), ("heads", 9), ("kv-heads", 3), ("head-dim", 64), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--cache", choices=CACHES, default="bfloat16")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--against", type=Path, help="another build of the native library")
    parser.add_argument("--only", default="", help="mixes whose name has this in it")
    args = parser.parse_args()
    layers = Layers(args.layers, args.heads, args.kv_heads, args.head_dim, CACHES[args.cache])
    libraries = [library_path(), *([args.against] if args.against else [])]
    steppers = [Stepper(layers, library, args.threads, CLOCKS[args.clock]) for library in libraries]
    sys.stdout.write(
        f"{isa_name()}, {args.cache} cache, {args.layers} layers; {args.clock} ms a step, median (fastest)\n"
    )
    for name, requests in MIXES.items():
        if args.only not in name:
            continue
        laps = measure(steppers, layers.step(requests), args.rounds)
        cells = "".join(f"{median(taken):10.2f} ({min(taken):.2f})" for taken in laps)
        ratio = f"   {median(laps[1]) / median(laps[0]):.2f} x" if args.against else ""
        sys.stdout.write(f"{name:32}{cells}{ratio}\n")


if __name__ == "__main__":
    main()
