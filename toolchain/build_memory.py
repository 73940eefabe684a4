"""What a build takes and leaves: its peak on the host, and the size of each file of the bundle.

A recipe, the sizes of its models and the text files of the checkpoint flow in; bytes flow out. Weights pass through in
slices (passes/sliced_tensor.py), so that the peak is that of the tools and of the graph, whatever the model weighs:
unless the float32 graph has to run, for calibration or for the accuracy gate. docs/plan.md explains every term;
benchmarks/plan_accuracy.py measures them.
"""

from collections.abc import Iterable, Mapping

from ..passes.number_formats import FORMATS
from ..passes.target import Target
from .build import target_of
from .calibrate import SMOOTHED_FORMATS
from .model_shape import Matrix, ModelShape
from .recipe import Recipe
from .run_memory import FLOAT_BYTES, TOKENIZER_FACTOR, engine_tensors, table_bytes
from .weight_formats import stored_bytes

__all__ = ["file_sizes", "forecast_build_peak"]

# Peak with 2, 16, 32 and 64 layers: 484, 529, 578 and 673 MiB (torch 2.13 for CPUs, transformers 5.24, onnxscript 0.7);
# 392 of them are there once everything is imported.
TOOLS_BYTES = 478 << 20
LAYER_BYTES = 3 << 20  # torch's and our graph of one layer, and what the exporter leaves behind
INPUT_COPIES = 6  # of what goes into a window's layers: onnxruntime's workspace, its arrays, histograms; measured 6.2
LOGITS_COPIES = 10  # of a window's logits in the gate: the same and two softmaxes; measured 9.7

ALIGNMENT_BYTES = 4096  # of tensors in .data files (toolchain/graph_file.py)
GRAPH_BYTES, ENGINE_BYTES = 9_000, 13_000  # meanings and what is there once; nodes and names come on top, by layer
GRAPH_LAYER_BYTES = {32: 4_300, 16: 6_000, 8: 10_800, 4: 10_800}  # by bits of a weight: Q/DQ nodes
ENGINE_LAYER_BYTES = {32: 4_300, 16: 4_400, 8: 6_300, 4: 4_400}
REPORT_BYTES = {"manifest.json": 10_000, "reports/build.json": 8_000}


def forecast_build_peak(recipe: Recipe, shapes: Mapping[str, ModelShape], tokenizer_bytes: int) -> int:
    """Largest resident size of a build: the larger of its two high points.

    At the end the tokenizers of all roles are compared; before, the float32 graph of a role may have to run.
    """
    tokenizer = TOKENIZER_FACTOR * tokenizer_bytes
    packing = max(len(shape.layers) for shape in shapes.values()) * LAYER_BYTES + len(shapes) * tokenizer
    running = (
        len(shape.layers) * LAYER_BYTES
        + tokenizer
        + max(_observing_bytes(recipe, shape), _gate_bytes(recipe, role, shape))
        for role, shape in shapes.items()
    )
    return TOOLS_BYTES + max(packing, *running)


def _observing_bytes(recipe: Recipe, shape: ModelShape) -> int:
    """Calibration: the float32 matrices but the head's, and what goes into every layer and cache; 0 without it."""
    if not _is_calibrated(recipe, shape):
        return 0
    weights = sum(one.elements for one in shape.matrices if not one.is_head)
    rows = shape.input_elements + sum(2 * layer.kv_heads * layer.head_dim for layer in shape.layers)
    return (weights + INPUT_COPIES * recipe.calibration.window * rows) * FLOAT_BYTES


def _gate_bytes(recipe: Recipe, role: str, shape: ModelShape) -> int:
    """The accuracy gate: all float32 weights, and a window's logits; 0 without it."""
    gate = recipe.gates.accuracy
    if gate is None or role != "target":
        return 0
    return (shape.elements + LOGITS_COPIES * gate.window * shape.vocab_size) * FLOAT_BYTES


def _is_calibrated(recipe: Recipe, shape: ModelShape) -> bool:
    """As `calibrate.needs_calibration`, of what is not measured yet."""
    target = target_of(recipe)
    formats = {target.format_of(one.module, one.is_head) for one in shape.matrices}
    needed = any(name in SMOOTHED_FORMATS or FORMATS[name].is_calibrated for name in formats)
    return (needed or "float8" in target.cache_dtype) and recipe.calibration.file is None


def file_sizes(recipe: Recipe, shapes: Mapping[str, ModelShape], texts: Mapping[str, bytes]) -> dict[str, int]:
    """Bytes of each file of the bundle, by path; `texts` are the checkpoint's text files as they will be written."""
    sizes = dict(REPORT_BYTES) | {name: len(content) for name, content in texts.items()}
    target = target_of(recipe)
    bits = FORMATS[target.weights].weight_bits
    for role, shape in shapes.items():
        graph, engine = f"graph/{role}.onnx", f"engines/{target.name}/{role}.onnx"
        sizes[graph] = GRAPH_BYTES + len(shape.layers) * GRAPH_LAYER_BYTES[bits]
        sizes[f"{graph}.data"] = _aligned(_portable_tensors(shape, target))
        sizes[engine] = ENGINE_BYTES + len(shape.layers) * ENGINE_LAYER_BYTES[bits]
        sizes[f"{engine}.data"] = _aligned(engine_tensors(shape, target))
    return dict(sorted(sizes.items()))


def _portable_tensors(shape: ModelShape, target: Target) -> list[int]:
    """Bytes of what a portable graph's weights consist of; a tied head in the table's format is the table."""
    matrices = [
        stored_bytes(one.in_features, one.out_features, name, target.block_size)
        for one, name in _with_formats(shape, target)
        if not (one.is_shared and name == target.embedding_format)
    ]
    return [*table_bytes(shape, target), *matrices, shape.vector_elements * FLOAT_BYTES]


def _with_formats(shape: ModelShape, target: Target) -> Iterable[tuple[Matrix, str]]:
    return ((one, target.format_of(one.module, one.is_head)) for one in shape.matrices)


def _aligned(sizes: Iterable[int]) -> int:
    """Each tensor from a multiple of 4096 on."""
    return sum(-(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for size in sizes)
