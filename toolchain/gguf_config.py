"""What a GGUF file's metadata say of the model, as a transformers configuration; each key is honoured or refused.

Metadata flow in, a configuration flows out. transformers has the table from GGUF keys to attributes, yet its own
reader passes over every key that the table lacks: a scaled RoPE or a window would vanish without a word and the model
would answer nonsense after a few thousand tokens. So its reader lost, and its table is used.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from transformers import AutoConfig, PretrainedConfig
from transformers.integrations.ggml import GGUF_CONFIG_DEFAULTS_MAPPING, GGUF_CONFIG_MAPPING

from .errors import ArchitectureError
from .gguf_rope import llama3_scaling

__all__ = ["config_from_gguf"]

# What transformers' table lacks for some architectures; a key has one meaning for all of them.
ATTRIBUTES = {
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attention.value_length": "head_dim",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.dimension_count": "head_dim",
    "rope.freq_base_swa": "rope_local_base_freq",
}
NO_ATTRIBUTES = {  # said by the tensors or by the rest of this file
    "attention.causal",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "tensor_data_layout",
    "vocab_size",
}
TEXT_MODEL_TYPES = {"gemma3": "gemma3_text"}  # a GGUF file holds the text half of these, which has a name of its own
OTHER_SCALES = {("gemma2", 46), ("gemma3", 62)}  # the 27B ones scale attention by a number that no key holds


def config_from_gguf(
    metadata: Mapping[str, object],
    vocab_size: int,
    tied: bool,
    rope_factors: npt.NDArray[np.float32] | None = None,
) -> PretrainedConfig:
    """The configuration of the model in a GGUF file.

    `metadata`: every scalar key of the file. `vocab_size`: rows of the embedding. `tied`: there is no separate head.
    `rope_factors`: the tensor rope_freqs.weight, which is how Llama 3's scaling is stored.
    Raises: ArchitectureError for an unknown architecture, or a key that nothing here honours.
    """
    architecture = str(metadata["general.architecture"])
    table = _table(architecture)
    values = {
        key.removeprefix(f"{architecture}."): value
        for key, value in metadata.items()
        if key.startswith(f"{architecture}.")
    }
    _refuse_unknown(architecture, values, table)
    attributes = {
        **GGUF_CONFIG_DEFAULTS_MAPPING.get(architecture, {}),
        **_special_ids(metadata),
        **_attributes(values, table),
        "vocab_size": vocab_size,
        "tie_word_embeddings": tied,
    }
    scaling = _rope_scaling(values, rope_factors, attributes)
    if scaling is not None:
        attributes["rope_scaling"] = scaling
    config = _config(TEXT_MODEL_TYPES.get(architecture, architecture), attributes)
    _check_said(architecture, values, config)
    return config


def _table(architecture: str) -> Mapping[str, str | None]:
    table: Mapping[str, str | None] | None = GGUF_CONFIG_MAPPING.get(architecture)
    if table is None or "block_count" not in table:
        raise ArchitectureError(
            f"GGUF architecture {architecture!r}",
            needed="one that the installed transformers knows: "
            + ", ".join(sorted(name for name, keys in GGUF_CONFIG_MAPPING.items() if "block_count" in keys)),
            do="give the original Hugging Face folder",
        )
    return table


def _refuse_unknown(architecture: str, values: Mapping[str, object], table: Mapping[str, str | None]) -> None:
    unknown = [
        f"{architecture}.{key} = {value!r}"
        for key, value in values.items()
        if key not in table and key not in ATTRIBUTES and key not in NO_ATTRIBUTES and value
    ]
    if (architecture, values.get("block_count")) in OTHER_SCALES:
        unknown.append(f"{architecture} with {values['block_count']} layers, whose attention scale is not in the file")
    if unknown:
        raise ArchitectureError(
            f"GGUF metadata {', '.join(unknown)}",
            needed="only metadata whose meaning can be kept: what is passed over gives a model that answers nonsense",
            do="give the original Hugging Face folder",
        )


def _attributes(values: Mapping[str, object], table: Mapping[str, str | None]) -> dict[str, object]:
    """Attributes from both tables; transformers' own goes first."""
    found: dict[str, object] = {}
    for key, value in values.items():
        name = table.get(key) or ATTRIBUTES.get(key)
        if name is not None:
            found.setdefault(name, value)
    return found


def _special_ids(metadata: Mapping[str, object]) -> dict[str, object]:
    """Ids of special tokens; None where the file has none, for a class's default is some other model's."""
    keys = GGUF_CONFIG_MAPPING["tokenizer"].items()
    return {name: metadata.get(f"tokenizer.{key}") for key, name in keys if name != "unk_token_id"}


def _rope_scaling(
    values: Mapping[str, object], rope_factors: npt.NDArray[np.float32] | None, attributes: Mapping[str, object]
) -> dict[str, object] | None:
    """How frequencies are stretched: linearly as the metadata say, or as Llama 3 does, which only a tensor shows."""
    kind = values.get("rope.scaling.type", "none")
    if rope_factors is not None and kind == "none":
        return llama3_scaling(rope_factors, float(str(attributes["rope_theta"])))
    if kind == "linear" and rope_factors is None:
        return {"rope_type": "linear", "factor": values["rope.scaling.factor"]}
    if kind == "none":
        return None
    raise ArchitectureError(
        f"GGUF RoPE scaling of type {kind!r}", needed="none, linear, or Llama 3's", do="give the Hugging Face folder"
    )


def _config(model_type: str, attributes: Mapping[str, object]) -> PretrainedConfig:
    known = AutoConfig.for_model(model_type).to_dict().keys() | {"head_dim", "rope_theta", "rope_scaling"}
    known |= {"rope_local_base_freq"} if model_type == "gemma3_text" else set()
    stray = sorted(attributes.keys() - known)
    if stray:
        raise ArchitectureError(
            f"GGUF metadata for {', '.join(stray)}, which {model_type} does not have",
            needed="metadata that fit the architecture",
            do="give the original Hugging Face folder",
        )
    try:
        config: PretrainedConfig = AutoConfig.for_model(model_type, **attributes)
    except Exception as error:  # each configuration class checks in its own way
        raise ArchitectureError(
            f"GGUF metadata make no {model_type} ({error})",
            needed="a whole set of metadata",
            do="convert the file again, or give the original Hugging Face folder",
        ) from error
    return config


def _check_said(architecture: str, values: Mapping[str, object], config: PretrainedConfig) -> None:
    """Several keys may speak of one attribute: they must agree."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    for key, name in ATTRIBUTES.items():
        found = head_dim if name == "head_dim" else getattr(config, name, values.get(key))
        if key in values and values[key] != found:
            raise ArchitectureError(
                f"GGUF metadata {architecture}.{key} = {values[key]!r} where {name} is {found!r}",
                needed="one size for queries, keys, values and their rotation",
                do="give the original Hugging Face folder",
            )
