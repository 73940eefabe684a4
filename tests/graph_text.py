"""Small graphs as text, for tests of passes: written by hand on the way in, one line a node on the way out.

`graph("(float[T,4] x) => (float[T,4] y) { y = Relu(x) }")` is ONNX's own text format without the header; names in the
body that nothing makes become initializers, given by keyword or drawn from a generator seeded by the name.
`listing(model)` writes `y = Relu(x)`: what a test compares, and what a reviewer reads.
"""

import zlib

import numpy as np
import onnx
import onnx_ir as ir

from paceline.plugins.contract import DOMAIN, OPSET_VERSION

__all__ = ["graph", "listing", "weights"]

HEADER = f'<ir_version: 10, opset_import: ["" : {OPSET_VERSION}, "{DOMAIN}" : 1]> g '


def weights(**shapes: list[int]) -> dict[str, np.ndarray]:
    """Normal float32 arrays of these shapes; the numbers depend on the name alone."""
    return {
        name: np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def graph(text: str, **initializers: np.ndarray | list[int]) -> ir.Model:
    """The model that `text` describes, with these initializers (lists are int64), shapes inferred where ONNX can."""
    proto = onnx.parser.parse_model(HEADER + text)
    for name, array in initializers.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def listing(model: ir.Model) -> str:
    """One line a node: `outputs = Operator(inputs, attribute=value)`; int64 lists show their numbers."""
    return "\n".join(_line(node) for node in model.graph)


def _line(node: ir.Node) -> str:
    outputs = ", ".join(str(output.name) for output in node.outputs)
    inputs = [_operand(value) for value in node.inputs]
    attributes = [f"{name}={_number(attr.value)}" for name, attr in sorted(node.attributes.items())]
    return f"{outputs} = {node.op_type}({', '.join(inputs + attributes)})"


def _operand(value: ir.Value | None) -> str:
    if value is None:
        return "-"
    tensor = value.const_value
    if tensor is not None and tensor.dtype == ir.DataType.INT64 and tensor.size <= 8:
        return str(tensor.numpy().tolist())
    return str(value.name)


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(list(value)) if isinstance(value, tuple | list) else str(value)
