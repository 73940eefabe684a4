"""The sizes of a model that memory depends on, read without its weights.

A checkpoint flows in: its configuration and the shapes of its tensors. A `ModelShape` flows out. The model's own code
runs once on torch's meta device, where tensors have shapes and no bytes, and shows each layer's keys to a hook; that
takes a second or two for any size. A table of formulas by architecture was the alternative and lost: it is code per
model, and wrong for the next one.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights

from ..passes.precision import HEAD
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
    """A weight that rows are multiplied with, as [in, out]; `module` is the name that recipes know its layer by.

    `is_shared`: an embedding table is the same tensor.
    """

    module: str
    in_features: int
    out_features: int
    is_shared: bool = False

    @property
    def is_head(self) -> bool:
        """Whether its output becomes the logits."""
        return self.module == HEAD

    @property
    def elements(self) -> int:
        """How many weights."""
        return self.in_features * self.out_features


@dataclass(frozen=True)
class ModelShape:
    """What a forecast needs to know of one model.

    `tables`: embeddings as (rows, columns). `matrices`: linear layers, the head among them. `vector_elements`: norms
    and biases together. `input_elements`: of a row, over everything that goes into a linear layer, each once.
    """

    tables: tuple[tuple[int, int], ...]
    matrices: tuple[Matrix, ...]
    vector_elements: int
    input_elements: int
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
    seen = Traced()
    with attention_hook(seen.attend), blaming(type(config).__name__), torch.device("meta"):
        model = _weightless_model(config)
        check_weights(model, checkpoint)
        seen.run(model)
    tables = _tables(model)
    text = config.get_text_config()
    return ModelShape(
        tables=tuple((int(table.shape[0]), int(table.shape[1])) for table in tables),
        matrices=tuple(_matrices(model, tables)),
        vector_elements=sum(parameter.numel() for parameter in model.parameters() if parameter.ndim != 2),
        input_elements=seen.input_elements,
        vocab_size=seen.vocab_size,
        hidden_size=int(text.hidden_size),
        max_positions=int(text.max_position_embeddings),
        layers=tuple(layer for _, layer in sorted(seen.layers.items())),
    )


@dataclass
class Traced:
    """What showed when the model ran: each layer's cache, columns of the logits, widths of what linear layers read."""

    layers: dict[int, LayerCache] = field(default_factory=dict)
    inputs: dict[int, torch.Tensor] = field(default_factory=dict)  # by id, and held so that ids stay apart
    vocab_size: int = 0

    @property
    def input_elements(self) -> int:
        """Of one row, over all inputs of linear layers, each once."""
        return sum(int(tensor.shape[-1]) for tensor in self.inputs.values())

    def attend(
        self, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, *rest: Any, **options: Any
    ) -> tuple[torch.Tensor, None]:
        """What transformers calls instead of attention."""
        self.layers[int(module.layer_idx)] = LayerCache(int(key.shape[1]), int(key.shape[3]))  # type: ignore[arg-type]
        out, _ = put_down_attention(module, query, key, *rest, **options)
        return out.to(query.device), None  # the symbolic node answers on the CPU

    def run(self, model: PreTrainedModel) -> None:
        """Let `model`, which is on the meta device, answer one sequence."""
        for module in model.modules():
            if not isinstance(module, torch.nn.Embedding) and any(one.ndim == 2 for one in module.parameters(False)):
                module.register_forward_pre_hook(self.take_input)
        ids = torch.zeros((1, EXAMPLE_TOKENS), dtype=torch.int64)
        with torch.no_grad():
            self.vocab_size = int(model(input_ids=ids, position_ids=ids, use_cache=False).logits.shape[-1])

    def take_input(self, module: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
        """Called before each linear layer."""
        del module
        self.inputs[id(arguments[0])] = arguments[0]


def _weightless_model(config: PretrainedConfig) -> PreTrainedModel:
    with no_init_weights():
        model = AutoModelForCausalLM.from_config(config, attn_implementation=IMPLEMENTATION, dtype=torch.float32)
        model.tie_weights()
    return model.eval()


def _tables(model: PreTrainedModel) -> list[torch.Tensor]:
    """Embedding tables, each once."""
    tables = {id(one.weight): one.weight for one in model.modules() if isinstance(one, torch.nn.Embedding)}
    return list(tables.values())


def _matrices(model: PreTrainedModel, tables: list[torch.Tensor]) -> Iterable[Matrix]:
    """Every two-dimensional weight that rows meet: torch's Linear keeps it as [out, in], other modules as [in, out]."""
    shared, head = {id(table) for table in tables}, model.get_output_embeddings()
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Embedding):
            continue
        for weight in module.parameters(recurse=False):
            if weight.ndim == 2:
                rows, columns = (int(size) for size in weight.shape)
                sizes = (columns, rows) if isinstance(module, torch.nn.Linear) else (rows, columns)
                yield Matrix(HEAD if module is head else name, *sizes, is_shared=id(weight) in shared)
