"""The meanings of our operators, put into a model as functions, so that a stock onnxruntime can run it.

A model with nodes of our domain flows in; a model that shares its graph, with one function for each meaning in use,
flows out. Keeping the functions in the model all the way through the passes was the alternative and lost: library
passes inline, fold and count what is in there, and a pass that changes an attribute would leave a stale one behind.
"""

from collections.abc import Iterator

import onnx_ir as ir

from ..plugins import contract
from ..plugins.meanings import OP_TYPES, meaning_of

__all__ = ["with_meanings"]

IR_VERSION = 10  # the first with overloads: functions of one name, told apart by node


def with_meanings(model: ir.Model) -> ir.Model:
    """A model around the same graph, with the functions that its nodes of our domain mean, in order of their names.

    Sets `overload` of these nodes: it says which of an operator's functions a node means. Operators of our domain that
    have no meaning are left to fail where they are run.
    """
    functions: dict[tuple[str, str], ir.Function] = {}
    for node in _our_nodes(model.graph):
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        meaning = meaning_of(node.op_type, attributes, [value is not None for value in node.inputs])
        node.overload = meaning.overload
        if (node.op_type, node.overload) not in functions:
            functions[node.op_type, node.overload] = ir.serde.deserialize_function(meaning)
    graph = model.graph
    if functions:
        graph.opset_imports.setdefault(contract.DOMAIN, 1)
    opsets = sorted(graph.opset_imports.items())
    graph.opset_imports.clear()
    graph.opset_imports.update(opsets)
    return ir.Model(
        graph,
        ir_version=max(IR_VERSION, model.ir_version),
        producer_name=contract.DOMAIN,
        functions=[function for _, function in sorted(functions.items())],
    )


def _our_nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    return (node for node in graph if node.domain == contract.DOMAIN and node.op_type in OP_TYPES)
