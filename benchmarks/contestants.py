"""Who is compared: one row of the tables each, as data. Every row is opened as a process of its own.

All start from the same dequantised weights (write_models.py). A row is compared with the rows of its own precision
only. What was tried to make OpenVINO faster than its defaults is in `OPENVINO_TRIALS`, run by `peers.py --trials`.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

__all__ = ["BUNDLES", "MODELS", "OPENVINO_TRIALS", "REFERENCE", "ROWS", "Row"]

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "build" / "peers"
BUNDLES = ROOT / "bundles"
MAIN, PEERS = ROOT / ".venv" / "bin" / "python", ROOT / ".venv-peers" / "bin" / "python"
DRAFT_TOKENS = 4


@dataclass(frozen=True)
class Row:
    """One contestant: `options` goes to its worker, `draft_tokens` into its jobs; `precision` is bf16 or int8."""

    engine: str
    precision: str
    worker: str
    python: Path
    options: dict[str, Any]
    draft_tokens: int = 0
    note: str = ""

    @property
    def name(self) -> str:
        """What tables and result files call it."""
        lookup = " + prompt lookup" if self.draft_tokens else ""
        return f"{self.engine} {self.precision}{lookup}{self.note}"


def _paceline(precision: str, bundle: str, draft_tokens: int) -> Row:
    return Row("Paceline", precision, "ours.py", MAIN, {"bundle": str(BUNDLES / bundle)}, draft_tokens)


def _openvino(precision: str, folder: str, draft_tokens: int) -> Row:
    options = {
        "model": str(MODELS / folder),
        "tokenizer": str(MODELS / folder),
        "lookup": bool(draft_tokens),
        "properties": {"INFERENCE_PRECISION_HINT": "bf16"},
        "scheduler": {"max_num_batched_tokens": 4096},
    }
    return Row("OpenVINO GenAI", precision, "peer_openvino.py", PEERS, options, draft_tokens)


def _llama(precision: str, file: str) -> Row:
    return Row("llama.cpp", precision, "peer_llama_cpp.py", PEERS, {"model": str(MODELS / file)})


ROWS = (
    _paceline("bf16", "smollm2-135m", 0),
    _openvino("bf16", "openvino-fp16", 0),
    _llama("bf16", "bf16.gguf"),
    _paceline("bf16", "smollm2-135m", DRAFT_TOKENS),
    _openvino("bf16", "openvino-fp16", DRAFT_TOKENS),
    _paceline("int8", "smollm2-135m-int8", 0),
    _openvino("int8", "openvino-int8", 0),
    _llama("int8", "q8_0.gguf"),
    _paceline("int8", "smollm2-135m-int8", DRAFT_TOKENS),
    _openvino("int8", "openvino-int8", DRAFT_TOKENS),
)

REFERENCE = Row("transformers", "fp32", "peer_transformers.py", MAIN, {"model": str(MODELS / "checkpoint")})


def _trial(row: Row, note: str, **changes: Any) -> Row:
    options = dict(row.options)
    for name, value in changes.items():
        options[name] = {**options[name], **value} if isinstance(value, dict) else value
    return replace(row, options=options, note=f", {note}")


_BF16 = _openvino("bf16", "openvino-fp16", 0)
_INT8 = _openvino("int8", "openvino-int8", 0)

OPENVINO_TRIALS = (
    _BF16,
    _trial(_BF16, "keys and values u8", properties={"KV_CACHE_PRECISION": "u8"}),
    _trial(_BF16, "keys and values bf16", properties={"KV_CACHE_PRECISION": "bf16"}),
    _trial(_BF16, "threads not pinned", properties={"ENABLE_CPU_PINNING": False}),
    _trial(_BF16, "256 tokens a step (its default)", scheduler={"max_num_batched_tokens": 256}),
    _trial(_BF16, "prompts in steps of their own", scheduler={"dynamic_split_fuse": False}),
    _trial(_BF16, "throughput hint", properties={"PERFORMANCE_HINT": "THROUGHPUT"}),
    _trial(_BF16, "its own GGUF reader", model=str(MODELS / "bf16.gguf"), tokenizer=str(MODELS / "bf16.gguf")),
    _INT8,
    _trial(_INT8, "symmetric", model=str(MODELS / "openvino-int8-sym"), tokenizer=str(MODELS / "openvino-int8-sym")),
    _trial(_INT8, "f32 hint", properties={"INFERENCE_PRECISION_HINT": "f32"}),
    _trial(_INT8, "no dynamic quantisation", properties={"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}),
    _trial(_INT8, "dynamic quantisation by 64", properties={"DYNAMIC_QUANTIZATION_GROUP_SIZE": 64}),
    _trial(_INT8, "keys and values bf16", properties={"KV_CACHE_PRECISION": "bf16"}),
)
