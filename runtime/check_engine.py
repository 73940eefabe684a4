"""Whether an engine file is the one that its manifest describes: layers, page pools, vocabulary.

The facts of a manifest and the tensors at a session's border flow in; nothing flows out, or an error that names the
tensor. Without this a manifest of another model binds buffers of the wrong size, and the first step writes beyond them.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ..plugins import contract
from ..plugins.contract import GraphFacts
from .errors import BundleError

__all__ = ["Border", "check_engine"]


class Border(Protocol):
    """One input or output of an engine, as onnxruntime describes it; sizes that are free have names."""

    name: str
    type: str
    shape: list[Any]


def check_engine(file_name: str, facts: GraphFacts, inputs: Iterable[Border], outputs: Iterable[Border]) -> None:
    """Raise `BundleError` naming the first tensor of the engine that is not as `facts` say."""
    found = {one.name: f"{one.type} {_sizes(one.shape)}" for one in (*inputs, *outputs)}
    for name, expected in _expected(facts).items():
        if found.get(name) != expected:
            raise BundleError(
                f"{name} of {file_name} is {found.get(name, 'missing')}",
                needed=f"{expected}, as the manifest says",
                do="build the bundle again",
            )
    extra = contract.kv_pages_in(len(facts.layers))
    if extra in found:
        raise BundleError(
            f"{file_name} has {extra}",
            needed=f"{len(facts.layers)} layers, as the manifest says",
            do="build the bundle again",
        )


def _expected(facts: GraphFacts) -> Mapping[str, str]:
    pools = {}
    for layer_id in range(len(facts.layers)):
        shape = facts.pool_shape(layer_id, 1)
        pools[contract.kv_pages_in(layer_id)] = (
            f"tensor({_onnx_name(facts.cache_dtype)}) {_sizes([2, 'any', *shape[2:]])}"
        )
    return {**pools, contract.LOGITS: f"tensor(float) {_sizes(['any', facts.vocab_size])}"}


def _onnx_name(dtype: str) -> str:
    return {"float32": "float"}.get(dtype, dtype)


def _sizes(shape: Iterable[object]) -> str:
    return "[" + ", ".join(str(size) if isinstance(size, int) else "any" for size in shape) + "]"
