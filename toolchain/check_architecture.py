"""Does a model fit the graph contract? Asked of the configuration before export and of the graph after it.

A configuration or a tidied graph flows in; nothing flows out, or ArchitectureError. The exporter takes many models
that would export without a word and then answer wrongly: a mask that never reached the attention function, a token
shift or convolution beside attention, attention written by hand. A list of known good architectures was the
alternative and lost: it is code per model, and says no to models that would work.
"""

import math
from collections.abc import Mapping

import onnx_ir as ir
from transformers import PretrainedConfig, PreTrainedModel

from ..passes.trace_rows import row_inputs
from ..plugins import contract
from .errors import ArchitectureError

__all__ = [
    "attention_nodes",
    "check_attention",
    "check_config",
    "check_frequencies",
    "check_rows_apart",
    "own_attention",
]

LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})
ATTENTION = (contract.DOMAIN, "Attention")
QKV = ((0, 1), (1, 1), (2, 1))  # inputs of the attention node that hold rows, and on which axis


def check_config(config: PretrainedConfig) -> None:
    """Refuse what the configuration already gives away. Raises: ArchitectureError."""
    kind = type(config).__name__
    if getattr(config, "is_encoder_decoder", False):
        raise ArchitectureError(
            f"{kind} describes an encoder with a decoder", needed="a decoder-only model", do="choose another model"
        )
    _check_numbers(kind, config)
    experts = sorted(name for name, number in vars(config).items() if _counts_experts(name, number))
    if experts:
        raise ArchitectureError(
            f"{kind} is a mixture of experts ({', '.join(f'{name} = {getattr(config, name)}' for name in experts)})",
            needed="a dense model: there is no operator yet that sends each row to other weights",
            do="choose a dense model",
        )
    strange = sorted(set(getattr(config, "layer_types", None) or ()) - LAYER_TYPES)
    if strange:
        raise ArchitectureError(
            f"{kind} has layers of type {', '.join(strange)}",
            needed=f"layers of type {' or '.join(sorted(LAYER_TYPES))} only: others keep another state than pages",
            do="choose another model",
        )


def _check_numbers(kind: str, config: PretrainedConfig) -> None:
    """A length, an epsilon or a base of angles that makes NaN of every answer."""
    bad = [name for name, number in vars(config).items() if isinstance(number, float) and not math.isfinite(number)]
    bad += [name for name, number in vars(config).items() if name.endswith(("eps", "epsilon")) and (number or 0) < 0]
    length = getattr(config, "max_position_embeddings", None)
    if isinstance(length, int) and length < 1:
        bad.append("max_position_embeddings")
    if bad:
        raise ArchitectureError(
            f"{kind} has {', '.join(f'{name} = {getattr(config, name)}' for name in dict.fromkeys(bad))}",
            needed="numbers that a model can compute with",
            do="choose another copy of the checkpoint, or mend its configuration",
        )


def check_frequencies(model: PreTrainedModel) -> None:
    """Refuse rotary frequencies that are no numbers, as a base of 0 gives. Raises: ArchitectureError."""
    for name, buffer in model.named_buffers():
        if name.endswith("inv_freq") and not bool(buffer.isfinite().all()):
            raise ArchitectureError(
                f"{type(model).__name__} rotates by frequencies that are not finite ({name})",
                needed="a base and factors of the rotary embedding that are greater than 0",
                do="choose another copy of the checkpoint, or mend rope_parameters in its configuration",
            )


def _counts_experts(name: str, number: object) -> bool:
    """num_experts, num_local_experts, n_routed_experts, moe_num_experts ... of more than one expert."""
    return name.endswith("experts") and isinstance(number, int) and number > 1


def own_attention(kind: str, reason: str) -> ArchitectureError:
    """The refusal of a model that never asks transformers' attention interface."""
    return ArchitectureError(
        f"{kind} computes attention by itself{reason}",
        needed="attention called through transformers' attention interface: only there can it become one operator",
        do="choose a model that has the interface, or add it to the model in transformers",
    )


def attention_nodes(graph: ir.Graph) -> dict[int, ir.Node]:
    """The attention node of each layer."""
    nodes = [node for node in graph if (node.domain, node.op_type) == ATTENTION]
    return {node.attributes.get_int("layer"): node for node in nodes}


def check_attention(graph: ir.Graph, config: PretrainedConfig) -> None:
    """Every layer has one attention node, with the window that its mask would have had. Raises: ArchitectureError."""
    layers = attention_nodes(graph)
    calls = [node for node in graph if (node.domain, node.op_type) == ATTENTION]
    if not calls:
        raise own_attention(type(config).__name__, " in every layer")
    if len(calls) != len(layers):
        raise ArchitectureError(
            f"{type(config).__name__} calls attention {len(calls)} times in {len(layers)} layers",
            needed="one attention a layer: each has one cache of keys and values",
            do="choose a model with one attention a layer",
        )
    if sorted(layers) != list(range(config.num_hidden_layers)):
        raise ArchitectureError(
            f"{type(config).__name__} shows attention in layers {sorted(layers)} of {config.num_hidden_layers}",
            needed="one causal attention in every layer, called through transformers' attention interface",
            do="choose a model without state-space, linear-attention or shared-cache layers",
        )
    for layer, window in _windows(config).items():
        found = layers[layer].attributes.get_int("window")
        if found != window:
            raise ArchitectureError(
                f"layer {layer} hands the window {found} to attention",
                needed=f"{window}, as config.json says (0 is none): the mask that would enforce it is not exported",
                do="choose a model that hands sliding_window to the attention interface",
            )


def _windows(config: PretrainedConfig) -> Mapping[int, int]:
    """The window of each layer as the configuration has it; 0 where a row sees everything before it."""
    window = int(getattr(config, "sliding_window", None) or 0)
    types = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    return {layer: window if kind == "sliding_attention" else 0 for layer, kind in enumerate(types)}


def check_rows_apart(graph: ir.Graph) -> None:
    """Follow the rows back from the logits: only attention may mix them, since only attention knows the requests.

    Raises: ArchitectureError naming the first operator that mixes rows, is not known not to, or reads what was made of
    all rows (LongRoPE takes its frequencies after the longest sequence of the step).
    """
    made_of_rows = _made_of_rows(graph)
    axes: dict[ir.Value, int] = {graph.outputs[0]: 0}
    for node in reversed(graph):
        found = {axes[output] for output in node.outputs if output in axes}
        if not found:
            continue
        is_attention = (node.domain, node.op_type) == ATTENTION
        inputs = QKV if is_attention else row_inputs(node, min(found))
        places = {place for place, _ in inputs or ()}
        shared = [value for place, value in enumerate(node.inputs) if place not in places and value in made_of_rows]
        if len(found) > 1 or inputs is None or shared:
            reads = f", which reads {shared[0].name}" if inputs is not None and shared and shared[0] else ""
            raise ArchitectureError(
                f"{node.op_type} {node.outputs[0].name}{reads} may mix the rows of different requests",
                needed="a model in which only attention looks at other tokens",
                do="choose another model; if this operator does keep rows apart, add it to passes/trace_rows.py",
            )
        for place, axis in inputs:
            value = node.inputs[place]
            assert value is not None
            axes.setdefault(value, axis)
    if graph.inputs[0] not in axes:
        raise AssertionError(f"the logits do not depend on {graph.inputs[0].name}")


def _made_of_rows(graph: ir.Graph) -> set[ir.Value | None]:
    """Values that depend on what the rows hold; how many rows there are is no secret."""
    found: set[ir.Value | None] = set(graph.inputs)
    for node in graph:
        if node.op_type not in ("Shape", "Size") and not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found
