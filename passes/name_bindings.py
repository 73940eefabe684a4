"""The last word on names: inputs and outputs as the contract has them, values so that a reader finds the layer.

In: a graph whose values are called after an exporter's counters. Out: the same graph with its inputs and outputs in the
contract's order, and every value named after the weight it is made with, or after its layer and operator. Names depend
on the graph alone, so equal graphs are equal bytes. Leaving the exporter's names was the alternative and lost: they
change with every version of torch, and a diff of two builds would show nothing else.
"""

import itertools
import re
from collections.abc import Iterator, MutableSequence, Sequence

import onnx_ir as ir

from ..plugins import contract
from .errors import PassError
from .target import Target
from .tidy import strip_notes

__all__ = ["name_bindings"]

STEP_INPUTS = (
    contract.INPUT_IDS,
    contract.POSITIONS,
    contract.QUERY_START,
    contract.CONTEXT_LEN,
    contract.PAGE_TABLE,
    contract.LOGIT_ROWS,
)
OUTPUTS = (contract.LOGITS, contract.HIDDEN)
LAYER = re.compile(r"(?:[^.]+\.)*?\d+(?=\.)")  # "model.layers.3" of "model.layers.3.mlp.up_proj"
WEIGHT = re.compile(r"\.(weight|bias|inv_freq)\b.*$")  # what follows the module in a state-dict name
COUNTER_NAME = re.compile(r"val_\d+")  # how exporters call a constant


def name_bindings(model: ir.Model, target: Target) -> int:
    """Order inputs and outputs as the contract does and name every value; returns how many names changed.

    Raises: PassError if the graph has an input or output that the contract does not know, or lacks one.
    """
    del target  # names are for readers, and runtimes of all kinds
    graph = model.graph
    num_layers = sum(node.op_type == "PagedAttention" for node in graph)
    pools = range(num_layers)
    _order(graph.inputs, [*STEP_INPUTS, *(contract.kv_pages_in(layer) for layer in pools)], optional=())
    _order(
        graph.outputs,
        [*OUTPUTS, *(contract.kv_pages_out(layer) for layer in pools)],
        optional=(contract.HIDDEN,),
    )
    strip_notes(model)
    return _rename_constants(graph) + _rename_values(graph)


def _order(values: MutableSequence[ir.Value], names: Sequence[str], optional: Sequence[str]) -> None:
    """Sort `values` by `names`, in place."""
    found = {str(value.name): value for value in values}
    unknown = sorted(found.keys() - set(names))
    missing = sorted(set(names) - found.keys() - set(optional))
    if unknown or missing:
        raise PassError(
            f"a graph with {unknown or 'nothing'} too many and {missing or 'nothing'} missing",
            needed="exactly the inputs and outputs of the contract",
            do="run insert_paged_attention and select_logit_rows first",
        )
    values[:] = [found[name] for name in names if name in found]


def _rename_constants(graph: ir.Graph) -> int:
    """Constants that only a counter told apart are numbered in the order of their use."""
    counted = [value for value in _in_order_of_use(graph) if COUNTER_NAME.fullmatch(str(value.name))]
    for number, value in enumerate(counted):
        del graph.initializers[str(value.name)]
        value.name = f"constant.{number}"
        graph.initializers[value.name] = value
    return len(counted)


def _in_order_of_use(graph: ir.Graph) -> list[ir.Value]:
    used = dict.fromkeys(value for node in graph for value in node.inputs if value is not None)
    return [value for value in used if value.is_initializer()]


def _rename_values(graph: ir.Graph) -> int:
    """Two rounds, since a new name may be some other value's old one."""
    fixed = {value.name for value in (*graph.inputs, *graph.outputs, *graph.initializers.values())}
    wanted: dict[ir.Value, str] = {}
    for value, stem in _stems(graph):
        if not value.is_graph_output():
            wanted[value] = _free_name(stem, fixed)
            fixed.add(wanted[value])
    changed = [value for value, name in wanted.items() if value.name != name]
    for number, value in enumerate(changed):
        value.name = f"/renaming/{number}"
    for value in changed:
        value.name = wanted[value]
    for node in graph:
        node.name = node.outputs[0].name
    return len(changed)


def _stems(graph: ir.Graph) -> Iterator[tuple[ir.Value, str]]:
    """Each value that nodes make, and what it should be called if nobody else is."""
    layer = "model"
    for node in graph:
        module = _module(node)
        if module is not None and (numbered := LAYER.match(module)):
            layer = numbered.group()
        stem = module or f"{layer}.{node.op_type}"
        for place, value in enumerate(node.outputs):
            yield value, stem if place == 0 else f"{stem}/{place}"


def _module(node: ir.Node) -> str | None:
    """The module whose weight `node` reads, directly or transposed: "a.q+k" for "a.q.weight+a.k.weight"."""
    for value in node.inputs:
        producer = value.producer() if value is not None else None
        is_transposed = producer is not None and producer.op_type == "Transpose"
        weight = producer.inputs[0] if producer is not None and is_transposed else value
        if weight is not None and weight.is_initializer() and WEIGHT.search(str(weight.name)):
            modules = [WEIGHT.sub("", part) for part in str(weight.name).split("+")]
            others = [module.rpartition(".")[2] for module in modules[1:]]
            stem = "+".join([modules[0], *others])
            return f"{stem}/transposed" if node.op_type == "Transpose" else stem
    return None


def _free_name(stem: str, taken: set[str | None]) -> str:
    """`stem`, or `stem#2`, `stem#3` and so on."""
    if stem not in taken:
        return stem
    return next(name for number in itertools.count(2) if (name := f"{stem}#{number}") not in taken)
