"""The border of a graph as the contract has it: names, and their order.

In: a graph that passes have given inputs and outputs. Out: the same graph with exactly the contract's, in the
contract's order; or an error, since what the runtime would bind is not there. Checking it in the runtime was the
alternative and lost: a bundle would be built and shipped before anybody knew.
"""

from collections.abc import MutableSequence, Sequence

import onnx_ir as ir

from ..plugins import contract
from .errors import PassError
from .target import Target

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


def name_bindings(model: ir.Model, target: Target) -> int:
    """Order inputs and outputs as the contract does; returns how many changed places.

    Raises: PassError if the graph has an input or output that the contract does not know, or lacks one.
    """
    del target  # every runtime binds the same names
    graph = model.graph
    pools = range(sum(node.op_type == "PagedAttention" for node in graph))
    inputs = (*STEP_INPUTS, *map(contract.kv_pages_in, pools))
    outputs = (*OUTPUTS, *map(contract.kv_pages_out, pools))
    return _order(graph.inputs, inputs) + _order(graph.outputs, outputs, optional=(contract.HIDDEN,))


def _order(values: MutableSequence[ir.Value], names: Sequence[str], optional: Sequence[str] = ()) -> int:
    """Sort `values` by `names`, in place; how many moved."""
    found = {str(value.name): value for value in values}
    unknown = sorted(found.keys() - set(names))
    missing = sorted(set(names) - found.keys() - set(optional))
    if unknown or missing:
        raise PassError(
            f"a graph with {unknown or 'nothing'} too many and {missing or 'nothing'} missing",
            needed="exactly the inputs and outputs of the contract",
            do="run insert_paged_attention and select_logit_rows first",
        )
    before = list(values)
    values[:] = [found[name] for name in names if name in found]
    return sum(old is not new for old, new in zip(before, values, strict=True))
