"""Writes docs/architectures.md: which families are tested, what they have, which fusions fire, and which are refused.

In: the configurations of `tiny_families`, exported and optimized as the tests do it. Out: the document. Every cell is
read off a graph, a configuration or an error, so that nobody can claim what no test has seen; a list kept by hand was
the alternative and lost. `python tests/architectures_table.py` writes it anew (about three minutes).
"""

from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir
from exports import TARGET, export_of, refusal_of
from tiny_families import FAMILIES, MORE_FAMILIES, MORE_REFUSED, REFUSED
from tiny_models import RandomCheckpoint

from paceline.passes.merge_qkv import KEEP_ROWS_APART
from paceline.plugins import contract
from paceline.toolchain.optimize import optimize

__all__ = ["DOCUMENT", "document", "family_row", "refusal_row"]

DOCUMENT = Path(__file__).parent.parent / "docs" / "architectures.md"
NUM_INPUTS = 9  # of PagedAttention with sinks
FUSIONS = {
    "RoPE": "fuse_rope",
    "QKV": "merge_qkv",
    "gate-up": "merge_gate_up",
    "SwiGLU": "fuse_swiglu",
    "sum+norm": "fuse_residual_norm",
}
HEAD = f"""\
# Architectures

Written by `python tests/architectures_table.py` from the tests' own models: two layers, random weights, 4 heads. A test
fails when this file says something else than they do.

Each family is exported without any code of its own, optimized, and run as ragged steps of three requests (chunks,
decode, verification, mixed) on stock onnxruntime and with our kernels; every row is compared with what transformers
answers for that request alone (2e-5 in fp32), and the bits of a row alone with its bits in company (fp32 and bf16).
`tests/toolchain/test_families.py` and `tests/passes/test_fusions_on_families.py` are those tests.

The columns {", ".join(FUSIONS)} count the places in two layers where a fusion fired
(0: the family has no such place, or it is spelled otherwise; it then runs in more operators, not wrongly).
*Nodes* is the whole graph after all portable passes. *Run*: in `every` test run, or in the `long` one.

| family | class | has | attention nodes | {" | ".join(FUSIONS)} | nodes | run |
|---|---|---|---|{"---|" * len(FUSIONS)}---|---|
"""
REFUSED_HEAD = """
## Refused

These are told apart by what they do, not by their name, before anything is computed with them.

| family | configuration | found | needed |
|---|---|---|---|
"""


def document() -> str:
    """The whole file."""
    families = sorted({**FAMILIES, **MORE_FAMILIES})
    refused = sorted({**REFUSED, **MORE_REFUSED})
    return HEAD + "".join(map(family_row, families)) + REFUSED_HEAD + "".join(map(refusal_row, refused))


def family_row(name: str) -> str:
    """One line of the first table."""
    checkpoint, exported = export_of(name)
    counts = {report.name: report.count for report in optimize(exported.model, TARGET)}
    graph = exported.model.graph
    cells = [
        f"`{name}`",
        type(checkpoint.model).__name__,
        ", ".join(_features(checkpoint, graph)),
        str(len(_attention(graph))),
        *(str(counts[one_pass]) for one_pass in FUSIONS.values()),
        str(len(graph)),
        "every" if name in FAMILIES else "long",
    ]
    return f"| {' | '.join(cells)} |\n"


def refusal_row(name: str) -> str:
    """One line of the second table."""
    error = refusal_of(name)
    config = {**REFUSED, **MORE_REFUSED}[name][0]
    return f"| `{name}` | {type(config).__name__} | {error.found} | {error.needed} |\n"


def _attention(graph: ir.Graph) -> list[ir.Node]:
    return [node for node in graph if node.op_type == "PagedAttention"]


def _features(checkpoint: RandomCheckpoint, graph: ir.Graph) -> Iterator[str]:
    nodes = _attention(graph)
    operators = {node.op_type for node in graph}
    yield from _attention_features(nodes, operators)
    if _is_normalized(nodes[0].inputs[0]):
        yield "qk-norm"
    yield "LayerNorm" if "LayerNormalization" in operators else "RMSNorm"
    yield from _weight_features(checkpoint, graph)
    if _has_parallel_branch(graph, nodes[0]):
        yield "parallel residual"
    config = checkpoint.config
    if config.tie_word_embeddings:
        yield "tied"
    if any("multiplier" in name for name in vars(config)):
        yield "multipliers"
    if getattr(config, "logit_scale", None) or getattr(config, "logits_scaling", 1) != 1:
        yield "logit scale"
    if getattr(config, "final_logit_softcapping", None):
        yield "logit softcap"


def _attention_features(nodes: list[ir.Node], operators: set[str]) -> Iterator[str]:
    numbers = [{name: attribute.value for name, attribute in node.attributes.items()} for node in nodes]
    first = numbers[0]
    if first["kv_heads"] < first["heads"]:
        yield "MQA" if first["kv_heads"] == 1 else "GQA"
    windows = sum(one["window"] > 0 for one in numbers)
    if windows:
        yield "window" if windows == len(nodes) else "window in some layers"
    if first["softcap"]:
        yield "softcap"
    if all(len(node.inputs) == NUM_INPUTS for node in nodes):
        yield "sinks"
    widths = [one["rotary_dim"] for one in numbers if one["rotary_dim"]]
    if widths:
        kind = "partial rotary" if widths[0] < first["head_dim"] else "rotary"
        pairs = " in pairs" if first["interleaved"] else ""
        yield kind + pairs + (" in some layers" if len(widths) < len(nodes) else "")
    elif "RotaryEmbedding" in operators:
        yield "rotary before a norm or scale"


def _is_normalized(value: ir.Value | None) -> bool:
    """Whether a norm stands between a projection and the attention."""
    node = value.producer() if value is not None else None
    while node is not None and node.op_type in (*KEEP_ROWS_APART, "Concat"):
        if node.op_type.endswith("Normalization"):
            return True
        source = node.inputs[0]
        node = source.producer() if source is not None else None
    return False


def _weight_features(checkpoint: RandomCheckpoint, graph: ir.Graph) -> Iterator[str]:
    names = set(checkpoint.names())
    tables = [node for node in graph if node.op_type == "Gather" and node.inputs[0].name in names]
    if any(_reads(node.inputs[1], contract.POSITIONS) for node in tables):
        yield "learned positions"
    matrices = {name.removesuffix(".weight") for name in names if len(checkpoint.shape(name)) > 1}
    if any(name.removesuffix(".bias") in matrices for name in names if name.endswith(".bias")):
        yield "biases"


def _reads(value: ir.Value | None, wanted: str) -> bool:
    """Whether `value` is made of the graph input called `wanted`."""
    if value is None or value.name == wanted:
        return value is not None
    node = value.producer()
    return node is not None and any(_reads(source, wanted) for source in node.inputs)


def _has_parallel_branch(graph: ir.Graph, attention: ir.Node) -> bool:
    """Whether a product stands beside the first attention: it neither feeds it nor reads what it made."""
    above, below = {attention}, {attention}
    for node in reversed(graph):
        if any(user in above for output in node.outputs for user in output.consumers()):
            above.add(node)
    for node in graph:
        if any(value is not None and value.producer() in below for value in node.inputs):
            below.add(node)
    return any(node.op_type == "MatMul" and node not in above | below for node in graph)


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
