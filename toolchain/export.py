"""From a checkpoint to one ONNX graph under the contract: token-major, one attention node a layer, no weights read.

A checkpoint flows in; `ExportedModel` flows out: inputs input_ids [T] and positions [T], output logits [T, vocab], all
rows being one sequence that starts at position 0. The passes make it ragged and paged. torch.export and transformers'
own modelling code do the work; writing each architecture's graph by hand (as most deployment tools do) was the
alternative and lost: it is code per model, and wrong for the next one.
"""

import copy
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import onnx_ir as ir
import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights

from ..passes import pipeline
from ..passes.base import run_passes
from ..passes.target import Target
from ..plugins import contract
from .attention_hook import IMPLEMENTATION, attention_hook
from .bind_weights import bind_weights, check_weights
from .blame import blaming
from .check_architecture import (
    attention_nodes,
    check_attention,
    check_config,
    check_frequencies,
    check_rows_apart,
    own_attention,
)
from .checkpoint import Checkpoint
from .errors import ArchitectureError
from .graph_file import save_graph
from .rename_weights import with_model_names

__all__ = ["ExportedModel", "export_model", "save_graph", "untouched_model"]

EXAMPLE_TOKENS = 11  # any number that is no other size in a model; the axis is dynamic
NUM_TOKENS = "T"
WRAPPED = "causal_lm"


@dataclass(frozen=True)
class ExportedModel:
    """A graph whose initializers read the checkpoint on demand, and what a runtime must know of it."""

    model: ir.Model
    facts: contract.GraphFacts


def export_model(checkpoint: Checkpoint, target: Target = Target()) -> ExportedModel:  # noqa: B008 (frozen)
    """Export `checkpoint`; page size and cache dtype of the facts are the target's.

    Raises: CheckpointError if the weights do not fit the configuration; ArchitectureError if the model cannot be
    expressed under the graph contract.
    """
    with attention_hook() as calls:
        causal_lm = untouched_model(checkpoint)
        checkpoint = with_model_names(checkpoint, causal_lm)
        check_weights(causal_lm, checkpoint)
        with _blaming_own_attention(causal_lm, calls):
            model = _onnx_from_torch(causal_lm)
    config = causal_lm.config.get_text_config()
    bind_weights(model.graph, causal_lm, f"{WRAPPED}.", checkpoint)
    _name_interface(model.graph)
    check_attention(model.graph, config)
    run_passes(model, target, pipeline.TIDY)
    check_rows_apart(model.graph)
    with blaming(type(config).__name__):
        return ExportedModel(model, _facts(model.graph, config, target))


class TokenMajor(torch.nn.Module):
    """The model under the contract's names: [T] in, [T, vocab] out."""

    def __init__(self, causal_lm: PreTrainedModel) -> None:
        super().__init__()
        self.causal_lm = causal_lm

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Logits of every row."""
        out = self.causal_lm(input_ids=input_ids[None], position_ids=positions[None], use_cache=False)
        return out.logits.squeeze(0)  # type: ignore[no-any-return]


@contextmanager
def _blaming_own_attention(causal_lm: PreTrainedModel, calls: Sequence[int]) -> Iterator[None]:
    """Say so where a model that does not claim to have the attention interface failed before it called it."""
    try:
        yield
    except ArchitectureError as error:
        if calls or causal_lm._supports_attention_backend:
            raise
        raise own_attention(type(causal_lm).__name__, f" ({error.found})") from error


def untouched_model(checkpoint: Checkpoint) -> PreTrainedModel:
    """The model with its buffers computed and its parameters allocated but never written, so that none is resident."""
    config = copy.deepcopy(checkpoint.config)  # from_config writes the attention's name into it
    check_config(config)
    kind = type(config).__name__
    with blaming(kind), no_init_weights():
        try:
            model = AutoModelForCausalLM.from_config(config, attn_implementation=IMPLEMENTATION, dtype=torch.float32)
        except KeyError as error:
            if error.args != (IMPLEMENTATION,):
                raise
            raise own_attention(kind, ", by a class for each implementation") from error
        model.tie_weights()
        check_frequencies(model)
    return model.eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter's own remarks (torchvision is missing, tree specs are deprecated) are nothing to act on."""
    exporter = logging.getLogger("torch.onnx")
    level = exporter.level
    exporter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        exporter.setLevel(level)


def _onnx_from_torch(causal_lm: PreTrainedModel) -> ir.Model:
    input_ids, positions = torch.arange(EXAMPLE_TOKENS), torch.arange(EXAMPLE_TOKENS)  # one tensor would be one input
    rows = {0: torch.export.Dim.DYNAMIC}
    with blaming(type(causal_lm).__name__), _quiet(), torch.no_grad():
        exported = torch.export.export(
            TokenMajor(causal_lm), (input_ids, positions), dynamic_shapes=(rows, rows), strict=False
        )
        program = torch.onnx.export(
            exported, (), dynamo=True, opset_version=contract.OPSET_VERSION, optimize=False, verbose=False
        )
    assert program is not None
    return program.model


def _name_interface(graph: ir.Graph) -> None:
    """Give the graph's inputs and output the contract's names, and the number of rows its letter, everywhere."""
    for value, name in zip(graph.inputs, (contract.INPUT_IDS, contract.POSITIONS), strict=True):
        value.name = name
    (logits,) = graph.outputs
    logits.name = contract.LOGITS
    assert graph.inputs[0].shape is not None
    exporters_name = graph.inputs[0].shape[0]
    for value in (*graph.inputs, *(output for node in graph for output in node.outputs)):
        if value.shape is not None and exporters_name in value.shape:
            value.shape = ir.Shape([NUM_TOKENS if size == exporters_name else size for size in value.shape])


def _facts(graph: ir.Graph, config: PretrainedConfig, target: Target) -> contract.GraphFacts:
    """Read from the graph what it says itself (layers, vocabulary), and the rest from the configuration."""
    (logits,) = graph.outputs
    assert logits.shape is not None
    vocab_size = logits.shape[-1]
    assert isinstance(vocab_size, int)
    return contract.GraphFacts(
        vocab_size=vocab_size,
        hidden_size=int(config.hidden_size),
        max_positions=int(config.max_position_embeddings),
        page_size=target.page_size,
        cache_dtype=target.cache_dtype,
        layers=tuple(
            contract.LayerCache(node.attributes.get_int("kv_heads"), node.attributes.get_int("head_dim"))
            for _, node in sorted(attention_nodes(graph).items())
        ),
    )
