"""One order for equal graphs: nodes as the outputs need them, initializers as the nodes use them.

In: a graph in any topological order. Out: the same nodes in the order in which a reader who starts at the first output
and asks for inputs from left to right would compute them. The exporter's own order was the alternative and lost: models
that walk over a Python set while they run (Gemma 3 over its kinds of layers) come out in another order each time.
"""

from collections.abc import Iterator

import onnx_ir as ir

from .target import Target

__all__ = ["sort_nodes"]


def sort_nodes(model: ir.Model, target: Target) -> int:
    """Put nodes and initializers in the order of their use; returns how many nodes changed places.

    Kept untouched: what each node computes. Nodes that no output needs go to the end, in the order they had.
    """
    del target  # equal bytes are wanted for all of them
    graph = model.graph
    old = list(graph)
    new = list(dict.fromkeys([*_in_order_of_need(graph), *old]))
    _sort_initializers(graph, new)
    moved = sum(before is not after for before, after in zip(old, new, strict=True))
    if moved:
        graph.remove(old)
        graph.extend(new)
    return moved


def _in_order_of_need(graph: ir.Graph) -> Iterator[ir.Node]:
    """Depth first from the outputs, inputs before the node that reads them; a node may come again."""
    done: set[ir.Node] = set()
    stack = [node for value in reversed(graph.outputs) if (node := value.producer()) is not None]
    while stack:
        node = stack[-1]
        sources = (value.producer() for value in node.inputs if value is not None)
        waiting = [source for source in sources if source is not None and source not in done]
        if waiting and node not in done:
            stack.extend(reversed(waiting))
        else:
            done.add(stack.pop())
            yield node


def _sort_initializers(graph: ir.Graph, nodes: list[ir.Node]) -> None:
    read = (value for node in nodes for value in node.inputs if value is not None and value.is_initializer())
    values = list(dict.fromkeys([*read, *graph.initializers.values()]))
    graph.initializers.clear()
    for value in values:
        graph.initializers[str(value.name)] = value
