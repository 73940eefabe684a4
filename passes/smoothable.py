"""Where the channels of a layer's rows can be scaled for nothing: in the weights of whatever makes these rows.

    norm -> layer           the norm's weight (and bias), divided
    attention -> layer      the columns of the value projection: attention mixes values, channel by channel
    SwiGLU -> layer         the columns of the up half: silu(gate) * up is linear in up

A layer flows in; a `Source` that can fold a vector away flows out, or the reason why there is none. A Mul in front of
the layer would always do, and lost: it costs a pass over the rows at every step, to win accuracy that 16 bits have.
Source: SmoothQuant, Xiao et al. 2022, section 4; AWQ, Lin et al. 2023, appendix on which scales fuse.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..plugins.contract import DOMAIN
from .linears import Linear, linear_behind
from .weights import constant_of, derive, derive_sliced, read, registered, small_constant

__all__ = ["SMOOTHED", "Source", "scale_rows", "source_of"]

Floats = npt.NDArray[np.float32]

SMOOTHED = "/smoothed"  # in the name of a matrix whose rows took factors
SCALED = "/scaled"  # in the name of what took the inverse of another layer's factors
NORMS = (("", "RMSNormalization", 1), ("", "LayerNormalization", 1), (DOMAIN, "ResidualNorm", 2))


@dataclass(frozen=True)
class Source:
    """`share(vector)` makes a vector one that can be folded away; `fold(graph, vector)` divides the channels by it."""

    share: Callable[[Floats], Floats]
    fold: Callable[[ir.Graph, Floats], None]


def source_of(linear: Linear) -> Source | str:
    """Where the channels of `linear.x` can be divided, or the reason why they cannot."""
    node = linear.x.producer()
    if node is None:
        return f"{linear.x.name} is an input"
    if len(linear.x.uses()) != 1 or linear.x.is_graph_output():
        return f"{linear.x.name} has other readers"
    for domain, op_type, place in NORMS:
        if (node.domain, node.op_type) == (domain, op_type) and linear.x is node.outputs[0]:
            return _norm_source(node, place)
    if node.domain == DOMAIN and node.op_type == "SwiGLU":
        return _gate_source(node)
    if node.domain == DOMAIN and node.op_type == "PagedAttention":
        return _attention_source(node)
    return f"{linear.x.name} comes from {node.op_type}, whose channels no weight scales"


def scale_rows(graph: ir.Graph, linear: Linear, vector: Floats) -> None:
    """Multiply row k of the layer's matrix with vector[k]; its product reads the new matrix."""
    shape = (linear.in_features, linear.out_features)
    name = f"{linear.weight.name}{SMOOTHED}"

    def columns(start: int, stop: int) -> np.ndarray:
        return np.asarray(linear.columns(start, stop) * vector[:, None], np.float32)

    matrix = derive_sliced(name, ir.DataType.FLOAT, shape, columns, axis=1)
    linear.product.replace_input_with(1, registered(graph, matrix))


def _norm_source(node: ir.Node, first: int) -> Source | str:
    """The norm's weight, and its bias where it has one."""
    for value in node.inputs[first:]:
        if value is None or constant_of(value) is None or value.producer() is not None:
            return f"the weight of {node.outputs[0].name} is no initializer"

    def fold(graph: ir.Graph, vector: Floats) -> None:
        for place in range(first, len(node.inputs)):
            _divide(graph, node, place, vector)

    return Source(lambda vector: vector, fold)


def _divide(graph: ir.Graph, node: ir.Node, place: int, vector: Floats) -> None:
    """Input `place` of `node`, a constant vector, divided by `vector`."""
    old = node.inputs[place]
    assert old is not None
    name = f"{old.name}{SCALED}/{node.outputs[0].name}"  # a weight may serve several norms
    new = derive(name, ir.DataType.FLOAT, vector.shape, lambda: np.asarray(read(old) / vector, np.float32))
    node.replace_input_with(place, registered(graph, new))


def _gate_source(node: ir.Node) -> Source | str:
    """The second half of the columns of gate and up."""
    merged = node.inputs[0]
    assert merged is not None
    linear = _only_reader(merged, node)
    if isinstance(linear, str):
        return linear
    half = linear.out_features // 2
    ones = np.ones(half, np.float32)
    return Source(
        lambda vector: vector, lambda graph, vector: _scale_columns(graph, linear, np.concatenate([ones, 1 / vector]))
    )


def _attention_source(node: ir.Node) -> Source | str:
    """The columns of v in the merged projection; query heads that share values share factors."""
    heads, kv_heads, dim = (node.attributes.get_int(name) for name in ("heads", "kv_heads", "head_dim"))
    values = node.inputs[2]
    split = values.producer() if values is not None else None
    if values is None or split is None or split.op_type != "Split" or len(values.uses()) != 1:
        return "the values do not come straight from a merged projection"
    sizes = small_constant(split.inputs[1]) if len(split.inputs) > 1 else None
    if sizes is None or values is not split.outputs[-1] or sizes[-1] != kv_heads * dim:
        return "the values are not the last part of a merged projection"
    merged = split.inputs[0]
    assert merged is not None
    linear = _only_reader(merged, split)
    if isinstance(linear, str):
        return linear
    ones = np.ones(linear.out_features - kv_heads * dim, np.float32)

    def share(vector: Floats) -> Floats:
        by_group = vector.reshape(kv_heads, heads // kv_heads, dim)
        return np.asarray(np.broadcast_to(by_group.max(axis=1, keepdims=True), by_group.shape).reshape(-1))

    def fold(graph: ir.Graph, vector: Floats) -> None:
        first_heads = vector.reshape(kv_heads, heads // kv_heads, dim)[:, 0].reshape(-1)
        _scale_columns(graph, linear, np.concatenate([ones, 1 / first_heads]))

    return Source(share, fold)


def _only_reader(merged: ir.Value, reader: ir.Node) -> Linear | str:
    """The linear layer that makes `merged`, if nobody but `reader` sees it."""
    if len(merged.uses()) != 1 or merged.is_graph_output():
        return f"{merged.name} has readers beside {reader.op_type}"
    return linear_behind(merged)


def _scale_columns(graph: ir.Graph, linear: Linear, vector: Floats) -> None:
    """Multiply column n of the layer's matrix, and its bias, with vector[n]."""
    current = linear_behind(linear.y)  # its rows may have been scaled since
    assert isinstance(current, Linear)
    shape = (current.in_features, current.out_features)
    factors = np.asarray(vector, np.float32)
    name = f"{current.weight.name}{SCALED}"

    def columns(start: int, stop: int) -> np.ndarray:
        return np.asarray(current.columns(start, stop) * factors[start:stop], np.float32)

    matrix = derive_sliced(name, ir.DataType.FLOAT, shape, columns, axis=1)
    current.product.replace_input_with(1, registered(graph, matrix))
    if current.bias is not None:
        add, bias = current.last_node, current.bias
        scaled = derive(
            f"{bias.name}{SCALED}",
            ir.DataType.FLOAT,
            factors.shape,
            lambda: np.asarray(read(bias) * factors, np.float32),
        )
        add.replace_input_with(list(add.inputs).index(bias), registered(graph, scaled))
