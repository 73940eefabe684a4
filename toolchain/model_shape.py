"""The sizes of a model that memory depends on, read without its weights.

A checkpoint flows in: its configuration and the shapes of its tensors. A `ModelShape` flows out. The model's own code
runs once on torch's meta device, where tensors have shapes and no bytes, and shows each layer's keys to a hook; that
takes a second or two for any size. A table of formulas by architecture was the alternative and lost: it is code per
model, and wrong for the next one.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.initialization import no_init_weights

from ..plugins.contract import LayerCache
from .attention_hook import IMPLEMENTATION, attention_hook, put_down_attention
from .bind_weights import check_weights
from .blame import blaming
from .check_architecture import check_config
from .checkpoint import Checkpoint

__all__ = ["Matrix", "ModelShape", "shape_of"]

EXAMPLE_TOKENS = 3


@dataclass(frozen=True)
class Matrix:
    """A weight that rows are multiplied with, as [in, out]; `is_shared` where an embedding table is the same tensor."""

    in_features: int
    out_features: int
    is_shared: bool = False

    @property
    def elements(self) -> int:
        """How many weights."""
        return self.in_features * self.out_features


@dataclass(frozen=True)
class ModelShape:
    """What a forecast needs to know of one model.

    `tables`: embeddings as (rows, columns). `matrices`: linear layers, the head among them. `vector_elements`: norms
    and biases together.
    """

    tables: tuple[tuple[int, int], ...]
    matrices: tuple[Matrix, ...]
    vector_elements: int
    vocab_size: int
    hidden_size: int
    max_positions: int
    layers: tuple[LayerCache, ...]

    @property
    def elements(self) -> int:
        """Weights of the model, tied ones once."""
        tables = sum(rows * columns for rows, columns in self.tables)
        return tables + sum(one.elements for one in self.matrices if not one.is_shared) + self.vector_elements


def shape_of(checkpoint: Checkpoint) -> ModelShape:
    """The sizes of the model in `checkpoint`; no weight is read or allocated.

    Raises: CheckpointError if the weights do not fit the configuration; ArchitectureError if the model cannot be
    exported, as far as that shows without exporting it.
    """
    config = copy.deepcopy(checkpoint.config)  # from_config writes the attention's name into it
    check_config(config)
    with blaming(type(config).__name__), no_init_weights(), torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation=IMPLEMENTATION, dtype=torch.float32)
        model.tie_weights()
    check_weights(model, checkpoint)
    layers, vocab_size = _traced(model)
    tables = _tables(model)
    text = config.get_text_config()
    return ModelShape(
        tables=tuple((int(table.shape[0]), int(table.shape[1])) for table in tables),
        matrices=tuple(_matrices(model, tables)),
        vector_elements=sum(parameter.numel() for parameter in model.parameters() if parameter.ndim != 2),
        vocab_size=vocab_size,
        hidden_size=int(text.hidden_size),
        max_positions=int(text.max_position_embeddings),
        layers=layers,
    )


def _traced(model: PreTrainedModel) -> tuple[tuple[LayerCache, ...], int]:
    """What each layer's attention is handed, and how many columns the logits have: one run without numbers."""
    layers: dict[int, LayerCache] = {}

    def record(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, *rest: Any, **options: Any) -> Any:
        layers[int(module.layer_idx)] = LayerCache(int(key.shape[1]), int(key.shape[3]))  # type: ignore[arg-type]
        return put_down_attention(module, query, key, *rest, **options)

    ids = torch.zeros((1, EXAMPLE_TOKENS), dtype=torch.int64, device="meta")
    with attention_hook(record), blaming(type(model.config).__name__), torch.no_grad(), torch.device("meta"):
        logits = model.eval()(input_ids=ids, position_ids=ids, use_cache=False).logits
    return tuple(layer for _, layer in sorted(layers.items())), int(logits.shape[-1])


def _tables(model: PreTrainedModel) -> list[torch.Tensor]:
    """Embedding tables, each once."""
    tables = {id(one.weight): one.weight for one in model.modules() if isinstance(one, torch.nn.Embedding)}
    return list(tables.values())


def _matrices(model: PreTrainedModel, tables: list[torch.Tensor]) -> Iterable[Matrix]:
    """Every two-dimensional weight that rows meet: torch's Linear keeps it as [out, in], other modules as [in, out]."""
    shared = {id(table) for table in tables}
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            continue
        for weight in module.parameters(recurse=False):
            if weight.ndim == 2:
                rows, columns = (int(size) for size in weight.shape)
                sizes = (columns, rows) if isinstance(module, torch.nn.Linear) else (rows, columns)
                yield Matrix(*sizes, is_shared=id(weight) in shared)
