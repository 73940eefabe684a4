"""From names to bytes: the initializers of an exported graph are bound to a checkpoint's tensors, and none is read.

A graph whose initializers are still torch's, the model that it came from and a checkpoint flow in; the same graph with
initializers that read the checkpoint when somebody asks flows out. Loading the weights into the model before exporting
was the alternative and lost: it holds them all in memory, and the graph needs only their names and shapes.
"""

import re
from collections.abc import Iterable, Mapping

import onnx_ir as ir
import torch
from transformers import PreTrainedModel

from ..passes.sliced_tensor import SlicedTensor
from .checkpoint import Checkpoint
from .errors import CheckpointError

__all__ = ["bind_weights", "check_weights"]


def check_weights(model: PreTrainedModel, checkpoint: Checkpoint) -> None:
    """Compare names and shapes before anything is exported or read.

    Raises: CheckpointError naming every tensor that is missing, has another shape, or that the model has no use for
    (a bias that config.json does not mention would otherwise vanish in silence).
    """
    sources = _sources(model)
    needed = {sources[name]: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = set(checkpoint.names())
    missing = sorted(needed.keys() - found)
    wrong = [
        f"{name} {list(checkpoint.shape(name))} instead of {list(shape)}"
        for name, shape in sorted(needed.items())
        if name in found and tuple(checkpoint.shape(name)) != shape
    ]
    unused = sorted(found - needed.keys() - sources.keys() - _ignored(model, found))
    faults = [
        f"{title}: {', '.join(names)}"
        for title, names in (("missing", missing), ("of the wrong shape", wrong), ("not used by the model", unused))
        if names
    ]
    if faults:
        raise CheckpointError(
            f"weights {'; '.join(faults)}",
            needed=f"exactly the tensors of {type(model).__name__} as config.json describes it",
            do="fetch the checkpoint again, or mend config.json",
        )


def bind_weights(graph: ir.Graph, model: PreTrainedModel, prefix: str, checkpoint: Checkpoint) -> None:
    """Give every initializer of `graph` its state-dict name and the checkpoint's tensor (float32), read on demand.

    `prefix` is what stands before the state-dict names now. Tied weights become one initializer. Buffers that are no
    part of a checkpoint (rotary frequencies, scales) keep their computed values.
    """
    sources = _sources(model)
    weights = model.state_dict()
    for value in tuple(graph.initializers.values()):
        assert value.name is not None
        name = value.name.removeprefix(prefix)
        del graph.initializers[value.name]
        if name in weights:
            name = sources[name]
        if name in graph.initializers:
            value.replace_all_uses_with(graph.initializers[name])
            continue
        value.name = name
        value.const_value = _lazy_tensor(checkpoint, name, value) if name in weights else _copied(value)
        graph.initializers[name] = value


def _sources(model: PreTrainedModel) -> Mapping[str, str]:
    """For each state-dict name the first name of the same tensor: tied weights share one."""
    first: dict[int, str] = {}
    tensors: Iterable[tuple[str, torch.Tensor]] = model.state_dict(keep_vars=True).items()
    return {name: first.setdefault(id(tensor), name) for name, tensor in tensors}


def _ignored(model: PreTrainedModel, names: Iterable[str]) -> set[str]:
    """Names that transformers itself skips for this model, and rotary frequencies that old checkpoints carry."""
    patterns = [*(model._keys_to_ignore_on_load_unexpected or ()), r"rotary_emb\.inv_freq$"]
    return {name for name in names if any(re.search(pattern, name) for pattern in patterns)}


def _lazy_tensor(checkpoint: Checkpoint, name: str, value: ir.Value) -> ir.LazyTensor:
    assert value.shape is not None
    shape = tuple(int(size) for size in value.shape.numpy())
    if not shape:  # a single number has no rows
        return ir.LazyTensor(
            lambda: ir.Tensor(checkpoint.read(name), name=name), ir.DataType.FLOAT, value.shape, name=name
        )
    return SlicedTensor(name, ir.DataType.FLOAT, shape, lambda start, stop: checkpoint.read_rows(name, start, stop))


def _copied(value: ir.Value) -> ir.TensorProtocol:
    assert value.const_value is not None
    return ir.Tensor(value.const_value.numpy().copy(), dtype=value.dtype, name=value.name)
