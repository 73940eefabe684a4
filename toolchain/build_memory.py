"""What a build takes and leaves: its peak on the host, and the size of each file of the bundle.

A recipe, the sizes of its models and the text files of the checkpoint flow in; bytes flow out. Weights pass through in
slices (passes/sliced_tensor.py), so that the peak is that of the tools and of the graph, whatever the model weighs.
docs/plan.md explains every term; benchmarks/plan_accuracy.py measures them.
"""

from collections.abc import Iterable, Mapping

from .model_shape import ModelShape
from .recipe import Recipe
from .run_memory import FLOAT_BYTES, TOKENIZER_FACTOR
from .tokenizer_files import TOKENIZER
from .weight_formats import FORMATS, packed_bytes

__all__ = ["file_sizes", "forecast_build_peak"]

# Peak with 2, 16, 32 and 64 layers: 464, 509, 556 and 653 MiB (torch 2.13 for CPUs, transformers 5.24, onnxscript 0.7);
# 372 of them are there once everything is imported.
TOOLS_BYTES = 458 << 20
LAYER_BYTES = 3 << 20  # torch's and our graph of one layer, and what the exporter leaves behind

ALIGNMENT_BYTES = 4096  # of tensors in .data files (toolchain/graph_file.py)
GRAPH_BYTES, GRAPH_LAYER_BYTES = 9_000, 4_300  # nodes, names and meanings: SmolLM2 with 4 and 30 layers
ENGINE_BYTES, ENGINE_LAYER_BYTES = 13_000, 4_300
REPORT_BYTES = {"manifest.json": 8_000, "reports/build.json": 7_500}


def forecast_build_peak(shapes: Mapping[str, ModelShape], tokenizer_bytes: int) -> int:
    """Largest resident size of a build: tools, the larger role's graph, the tokenizer once in memory."""
    num_layers = max(len(shape.layers) for shape in shapes.values())
    return TOOLS_BYTES + num_layers * LAYER_BYTES + TOKENIZER_FACTOR * tokenizer_bytes


def file_sizes(recipe: Recipe, shapes: Mapping[str, ModelShape], texts: Mapping[str, bytes]) -> dict[str, int]:
    """Bytes of each file of the bundle, by path; `texts` are the checkpoint's text files as they will be written."""
    sizes = dict(REPORT_BYTES) | {name: len(content) for name, content in texts.items()}
    for role, shape in shapes.items():
        graph, engine = f"graph/{role}.onnx", f"engines/cpu/{role}.onnx"
        num_layers = len(shape.layers)
        sizes[graph] = GRAPH_BYTES + num_layers * GRAPH_LAYER_BYTES
        sizes[f"{graph}.data"] = _portable_data_bytes(shape)
        sizes[engine] = ENGINE_BYTES + num_layers * ENGINE_LAYER_BYTES
        sizes[f"{engine}.data"] = _engine_data_bytes(shape, recipe)
    return dict(sorted(sizes.items()))


def _portable_data_bytes(shape: ModelShape) -> int:
    """Every weight in float32, tied ones once."""
    tables = [rows * columns * FLOAT_BYTES for rows, columns in shape.tables]
    matrices = [one.elements * FLOAT_BYTES for one in shape.matrices if not one.is_shared]
    return _aligned(tables + matrices) + shape.vector_elements * FLOAT_BYTES


def _engine_data_bytes(shape: ModelShape, recipe: Recipe) -> int:
    """As `engine_bytes`, each tensor from a multiple of 4096 on."""
    weights = FORMATS[recipe.quantization.weights]
    tables = [rows * columns * weights.table_bits // 8 for rows, columns in shape.tables]
    matrices = [packed_bytes(one.in_features, one.out_features, weights) for one in shape.matrices]
    return _aligned(tables + matrices) + shape.vector_elements * FLOAT_BYTES


def _aligned(sizes: Iterable[int]) -> int:
    return sum(-(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for size in sizes)
