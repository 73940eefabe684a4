"""Wrong rewrites, of the kinds that pass authors really make: what verification must find, and whom it must blame.

Each is an edit of a graph that the named pass has just left, sound to every structural check. `WRONG` is the list.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import onnx_ir as ir
from verified import Case

__all__ = ["WRONG", "Wrong"]

Plant = Callable[[ir.Model], None]


@dataclass(frozen=True)
class Wrong:
    """One fault in one pass, and the tiny model that it is planted into."""

    name: str
    pass_name: str
    plant: Plant
    case: Case = field(default_factory=Case)


def nodes(model: ir.Model, *op_types: str) -> list[ir.Node]:
    found = [node for node in model.graph if node.op_type in op_types]
    assert found, f"no {op_types} in the graph: {sorted({node.op_type for node in model.graph})}"
    return found


def weight_of(node: ir.Node, place: int) -> ir.Value:
    value = node.inputs[place]
    assert value is not None
    assert value.const_value is not None
    return value


def attribute(op_type: str, name: str, number: float, index: int = 0) -> Plant:
    """Set one attribute of the index-th node of a type."""

    def plant(model: ir.Model) -> None:
        node = nodes(model, op_type)[index]
        kind = ir.AttrInt64 if isinstance(number, int) else ir.AttrFloat32
        node.attributes[name] = kind(name, number)

    return plant


def constant(op_type: str, place: int, change: Callable[[np.ndarray], np.ndarray], index: int = 0) -> Plant:
    """Change the constant that is an input of the index-th node of a type."""

    def plant(model: ir.Model) -> None:
        value = weight_of(nodes(model, op_type)[index], place)
        assert value.const_value is not None
        array = value.const_value.numpy()
        value.const_value = ir.Tensor(np.ascontiguousarray(change(array)), dtype=value.dtype, name=value.name)

    return plant


def of_another_layer(op_type: str, place: int, one: int, other: int) -> Plant:
    """Let one node read what another of its type reads."""
    return lambda model: nodes(model, op_type)[one].replace_input_with(
        place, nodes(model, op_type)[other].inputs[place]
    )


def swapped_inputs(op_type: str, first: int, second: int, index: int = 0) -> Plant:
    def plant(model: ir.Model) -> None:
        node = nodes(model, op_type)[index]
        one, other = node.inputs[first], node.inputs[second]
        node.replace_input_with(first, other)
        node.replace_input_with(second, one)

    return plant


def swapped_outputs(op_type: str, first: int, second: int, index: int = 0) -> Plant:
    """Who reads one output reads the other."""

    def plant(model: ir.Model) -> None:
        node = nodes(model, op_type)[index]
        one, other = node.outputs[first], node.outputs[second]
        users = [(user, place, other) for user, place in one.uses()] + [(u, p, one) for u, p in other.uses()]
        for user, place, value in users:
            user.replace_input_with(place, value)

    return plant


def inserted(op_type: str, place: int, new_op: str, numbers: object, index: int = 0, **options: int) -> Plant:
    """Put `new_op(value, numbers)` in front of one input."""

    def plant(model: ir.Model) -> None:
        node = nodes(model, op_type)[index]
        insert(model, node, place, new_op, np.asarray(numbers), **options)

    return plant


def insert(model: ir.Model, node: ir.Node, place: int, new_op: str, numbers: np.ndarray, **options: int) -> None:
    value = node.inputs[place]
    assert value is not None
    name = f"wrong.{new_op}.{value.name}.{node.outputs[0].name}"
    extra = ir.Value(name=f"{name}.numbers", const_value=ir.Tensor(numbers, name=f"{name}.numbers"))
    extra.type, extra.shape = ir.TensorType(extra.const_value.dtype), extra.const_value.shape
    model.graph.register_initializer(extra)
    out = ir.Value(name=name, type=value.type, shape=value.shape)
    model.graph.insert_before(node, ir.node(new_op, [value, extra], options or None, outputs=[out]))
    node.replace_input_with(place, out)


def dropped(op_type: str, kept: int, index: int = 0) -> Plant:
    """Take a node away; whoever read its result reads its input instead."""

    def plant(model: ir.Model) -> None:
        node = nodes(model, op_type)[index]
        node.outputs[0].replace_all_uses_with(node.inputs[kept])

    return plant


def dropped_input(op_type: str, place: int, index: int = 0) -> Plant:
    """An optional last input is forgotten."""

    def plant(model: ir.Model) -> None:
        node = nodes(model, op_type)[index]
        assert len(node.inputs) == place + 1, "this input is not the last, or not there"
        node.resize_inputs(place)

    return plant


def repeated_residual(model: ir.Model) -> None:
    """The residual is lost: what is added to it is added to itself."""
    node = nodes(model, "ResidualNorm")[1]
    other = next(place for place in (0, 1) if "Add" in str(node.inputs[place].name))
    node.replace_input_with(other, node.inputs[1 - other])


def wrong_logit_rows(model: ir.Model) -> None:
    """Every wanted row but the first is the one before it."""
    for node in nodes(model, "Gather"):
        if node.inputs[1] is not None and node.inputs[1].name == "logit_rows":
            insert(model, node, 1, "Sub", np.asarray(1, np.int64))
            insert(model, node, 1, "Max", np.asarray(0, np.int64))


def wrong_head_grouping(model: ir.Model) -> None:
    """Query head h reads kv head h % kv_heads, not h // group: four heads of 16, two kv heads."""
    node = nodes(model, "PagedAttention")[0]
    columns = np.arange(64).reshape(4, 16)[[0, 2, 1, 3]].reshape(-1)
    insert(model, node, 0, "Gather", columns, axis=1)
    out = node.outputs[0]
    reader = next(iter(out.consumers()))
    insert(model, reader, list(reader.inputs).index(out), "Gather", columns, axis=1)


def one_page_table(model: ir.Model) -> None:
    """Page numbers are one too small, and the first page is everybody's."""
    insert(model, nodes(model, "PagedAttention")[0], 4, "Sub", np.asarray(1, np.int32))
    insert(model, nodes(model, "PagedAttention")[0], 4, "Max", np.asarray(0, np.int32))


def swapped_pools(model: ir.Model) -> None:
    first, second = nodes(model, "PagedAttention")[:2]
    pools = first.inputs[3], second.inputs[3]
    first.replace_input_with(3, pools[1])
    second.replace_input_with(3, pools[0])


def swapped_halves(node_type: str, place: int, width: int) -> Plant:
    columns = np.concatenate([np.arange(width // 2, width), np.arange(width // 2)])
    return inserted(node_type, place, "Gather", columns, axis=1)


def added_zero_point(model: ir.Model) -> None:
    """A symmetric format gets a zero point when it is read back."""
    node = next(node for node in nodes(model, "DequantizeLinear") if node.attributes.get_int("axis", 1) == 1)
    scale = weight_of(node, 1)
    zeros = ir.Value(name="wrong.zeros", const_value=ir.Tensor(np.full(scale.shape[0], 8, np.int8), name="wrong.zeros"))
    zeros.type, zeros.shape = ir.TensorType(ir.DataType.INT8), scale.shape
    model.graph.register_initializer(zeros)
    node.resize_inputs(3)
    node.replace_input_with(2, zeros)


def wrong_axis(model: ir.Model) -> None:
    """The scales of the columns of the first matrix of equal sides... or of any other: applied along the rows."""
    node = next(node for node in nodes(model, "DequantizeLinear") if node.attributes.get_int("axis", 1) == 1)
    node.attributes["axis"] = ir.AttrInt64("axis", 0)


def weights_rolled(op_type: str, place: int, axis: int, shift: int = 1, index: int = 0) -> Plant:
    return constant(op_type, place, lambda array: np.roll(array, shift, axis), index)


def unfolded_smoothing(model: ir.Model) -> None:
    """The rows are not divided by what the weights were multiplied with."""
    for node in nodes(model, "RMSNormalization", "ResidualNorm"):
        place = len(node.inputs) - 1
        value = weight_of(node, place)
        if "/scaled" in str(value.name):
            original = str(value.name).split("/scaled")[0]
            tensor = value.const_value
            assert tensor is not None
            value.const_value = ir.Tensor(np.ones(tensor.shape.numpy(), np.float32), name=f"{original}/ones")
            return
    raise AssertionError("nothing was smoothed")


def rescaled(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: (array.astype(np.float32) * factor).astype(array.dtype)


def reread(array: np.ndarray) -> np.ndarray:
    """The bytes of the transposed matrix under the same shape: a transpose that was only announced."""
    return array.T.reshape(array.shape)


def swapped_neighbours(array: np.ndarray) -> np.ndarray:
    """Nibbles in the wrong order: neighbouring columns change places."""
    return array.reshape(*array.shape[:-1], -1, 2)[..., ::-1].reshape(array.shape)


def other_bits(model: ir.Model) -> None:
    """The 16 bits of one matrix are written as if they were of the other 16-bit format."""
    value = next(node.inputs[0] for node in nodes(model, "Cast") if node.inputs[0].const_value is not None)
    array = value.const_value.numpy()
    value.const_value = ir.Tensor(array.astype(np.float16).view(ml_dtypes.bfloat16), dtype=value.dtype, name=value.name)


QWEN, MISTRAL, PHI = Case("qwen2"), Case("mistral"), Case("phi3")
INT8, ROWS16 = Case(weights="int8"), Case(weights="int8_rows16")
SMOOTHED, FP8 = Case(weights="int8", is_calibrated=True), Case(weights="fp8", is_calibrated=True)
BLOCKS, INT4 = Case(weights="int8_weight_only"), Case(weights="int4_weight_only")
KV = np.r_[0:64, 96:128, 64:96]

WRONG = (
    Wrong("two weights taken for one", "eliminate_duplicates", of_another_layer("Transpose", 0, 0, 3)),
    Wrong("epsilon lost", "recognize_ops", attribute("RMSNormalization", "epsilon", 1e-5)),
    Wrong("rotary in pairs, not halves", "recognize_ops", attribute("RotaryEmbedding", "interleaved", 1)),
    Wrong("cos and sin swapped", "recognize_ops", swapped_inputs("RotaryEmbedding", 1, 2, 1)),
    Wrong("gate and up of one matrix swapped", "merge_slices", swapped_outputs("Split", 0, 1, 1), PHI),
    Wrong("interleaved flipped", "fuse_rope", attribute("Attention", "interleaved", 1, 1)),
    Wrong("rotary_dim halved", "fuse_rope", attribute("Attention", "rotary_dim", 8)),
    Wrong("tables of two thetas swapped", "fuse_rope", of_another_layer("Attention", 3, 1, 0), Case("gemma3")),
    Wrong("positions doubled", "drop_batch_axis", inserted("Unsqueeze", 0, "Mul", np.int64(2))),
    Wrong("residual dropped", "drop_batch_axis", dropped("Add", 1)),
    Wrong("scale applied twice", "simplify_layout", inserted("Attention", 0, "Mul", np.float32(0.25), 1)),
    Wrong("norm of q heads dropped", "simplify_layout", dropped("RMSNormalization", 0, 1), Case("qwen3")),
    Wrong("k and v swapped", "merge_qkv", swapped_outputs("Split", 1, 2)),
    Wrong("merged weight in the wrong order", "merge_qkv", constant("MatMul", 1, lambda a: np.roll(a, 32, 1))),
    Wrong("merged bias in the old order", "merge_qkv", weights_rolled("Add", 1, 0, 32), QWEN),
    Wrong("gate and up swapped", "merge_gate_up", swapped_outputs("Split", 0, 1, 1)),
    Wrong("halves of SwiGLU swapped", "fuse_swiglu", swapped_halves("SwiGLU", 0, 96)),
    Wrong("residual is the other summand", "fuse_residual_norm", repeated_residual),
    Wrong("norm weight dropped", "fuse_residual_norm", constant("ResidualNorm", 2, np.ones_like, 3)),
    Wrong("sum and norm swapped", "fuse_residual_norm", swapped_outputs("ResidualNorm", 0, 1)),
    Wrong("transposed in name only", "transpose_weights", constant("MatMul", 1, reread, 1)),
    Wrong("wrong logits row", "select_logit_rows", wrong_logit_rows),
    Wrong("window off by one", "insert_paged_attention", attribute("PagedAttention", "window", 6, 1), MISTRAL),
    Wrong("window lost", "insert_paged_attention", attribute("PagedAttention", "window", 0), MISTRAL),
    Wrong("softcap lost", "insert_paged_attention", attribute("PagedAttention", "softcap", 0.0, 1), Case("gemma2")),
    Wrong("scale lost", "insert_paged_attention", attribute("PagedAttention", "scale", 1.0)),
    Wrong("wrong head grouping", "insert_paged_attention", wrong_head_grouping),
    Wrong("pools of two layers swapped", "insert_paged_attention", swapped_pools),
    Wrong("pages shared by mistake", "insert_paged_attention", one_page_table),
    Wrong("page size of another kernel", "insert_paged_attention", attribute("PagedAttention", "page_size", 2)),
    Wrong("live bias called dead", "remove_dead_code", dropped("Add", 0), QWEN),
    Wrong("smoothing not folded", "smooth_inputs", unfolded_smoothing, SMOOTHED),
    Wrong("scale of rows halved", "quantize_fp8", constant("QuantizeLinear", 1, rescaled(0.02)), FP8),
    Wrong("column scales rolled", "quantize_int8", weights_rolled("DequantizeLinear", 1, 0, 64), INT8),
    Wrong("axis of the scales wrong", "quantize_int8", wrong_axis, INT8),
    Wrong("zero point added", "quantize_int8", added_zero_point, INT8),
    Wrong("steps of another layer's rows", "quantize_int8", of_another_layer("QuantizeLinear", 1, 4, 0), ROWS16),
    Wrong("scales of the next block", "quantize_weight_only", weights_rolled("DequantizeLinear", 1, 1), BLOCKS),
    Wrong("nibbles swapped", "quantize_weight_only", constant("DequantizeLinear", 0, swapped_neighbours), INT4),
    Wrong("stale initialiser", "cast_linears", of_another_layer("MatMul", 1, 4, 0)),
    Wrong("bits of another format", "cast_linears", other_bits),
    Wrong("ids off by one", "store_embedding", weights_rolled("Gather", 0, 0)),
    Wrong("packed weights of another layer", "lower_to_cpu", of_another_layer("LinearBf16", 1, 5, 1)),
    Wrong("bias dropped", "lower_to_cpu", dropped_input("LinearBf16", 2), QWEN),
    Wrong("packed scales rolled", "lower_to_cpu", weights_rolled("LinearInt8", 2, 0, 16), INT8),
    Wrong("panels in the wrong order", "lower_to_cpu", weights_rolled("LinearBf16", 1, 0)),
    Wrong("k and v packed the other way", "pack_attention_inputs", inserted("PagedAttention", 0, "Gather", KV, axis=1)),
    Wrong("halves of the gate swapped", "fuse_gated_linear", weights_rolled("GatedLinearBf16", 1, 0, 3)),
)
