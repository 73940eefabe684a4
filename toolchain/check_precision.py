"""Which formats really stand in a graph: read from its nodes and constants, never from the flags that asked for them.

A model flows in; the format of each linear layer, by module, flows out, or an error that names every layer that is not
what was planned. A build that asks for one format and ships another is the pain that this file exists for.
"""

from collections.abc import Mapping

import onnx_ir as ir

from ..passes.number_formats import FORMATS
from ..passes.precision import HEAD, becomes_logits, layers_of
from ..passes.target import Target
from ..passes.typed_linears import TypedLinear, typed_linear_behind
from ..passes.weights import module_of
from .errors import PrecisionError

__all__ = ["check_formats", "formats_in", "planned_formats"]


def planned_formats(model: ir.Model, target: Target) -> dict[str, str]:
    """By module: the format that each float32 layer of `model` is to get."""
    return {layer.module: target.format_of(layer.module, layer.is_head) for layer in layers_of(model.graph)}


def formats_in(model: ir.Model) -> dict[str, str]:
    """By module: the format of each linear layer, "<rows> x <weights>" where it is none of ours."""
    found = {}
    for node in model.graph:
        if node.domain == "" and node.op_type == "MatMul":
            linear = typed_linear_behind(node.outputs[0])
            if not isinstance(linear, str):
                found[_module(linear)] = _name(linear)
    return found


def check_formats(planned: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Raise `PrecisionError` naming the layers whose format is not the planned one."""
    wrong = [
        f"{module} is {found.get(module, 'missing')}" for module, name in planned.items() if found.get(module) != name
    ]
    if wrong:
        raise PrecisionError(
            f"{len(wrong)} layers are not in the format that was asked for: {', '.join(wrong[:8])}",
            needed=f"{planned[wrong[0].split(' is ')[0]]} in the graph that ships",
            do="read the reasons in the build report, or give these layers another format with quantization.keep",
        )


def _module(linear: TypedLinear) -> str:
    name = str(linear.stored.constant.name)
    product = linear.y
    users = [user for user in product.consumers() if user.op_type == "Add"]
    y = users[0].outputs[0] if users and not isinstance(typed_linear_behind(users[0].outputs[0]), str) else product
    return HEAD if becomes_logits(y) else module_of(name) or name


def _name(linear: TypedLinear) -> str:
    for name, one in FORMATS.items():
        if (linear.rows.dtype, linear.stored.dtype, bool(linear.stored.block_size)) == (
            one.rows,
            one.weight,
            one.is_blocked,
        ):
            return name
    return f"{linear.rows.dtype.name} x {linear.stored.dtype.name}"
