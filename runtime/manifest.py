"""The bundle's table of contents: what lies in it, what it was made of, and what an engine needs.

Dataclasses flow in at build time and one canonical JSON file flows out (sorted keys, one form of every number, a digest
of itself); at load time the same the other way round. pydantic lost here: a manifest is written by us, checked by
digest, and the deploy box should not pay for a validator.

    bundle/
        manifest.json
        graph/<role>.onnx, .onnx.data          portable graph, runs on any stock onnxruntime
        engines/<kind>/<role>.onnx, .onnx.data
        tokenizer.json  chat_template.jinja  generation_config.json
        calibration.json                       where a format asked for it
        reports/*.json
        signature                              not part of the manifest: it signs the manifest too
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..plugins.contract import GraphFacts
from .typed_json import value_from_json

__all__ = [
    "MANIFEST",
    "SCHEMA_VERSION",
    "SIGNATURE",
    "EngineEntry",
    "EngineNeeds",
    "FileEntry",
    "Manifest",
    "PassEntry",
    "RoleEntry",
]

MANIFEST = "manifest.json"
SIGNATURE = "signature"
SCHEMA_VERSION = 2
SEAL = "manifest_sha256"  # of the canonical text without this line: one turned bit is seen without any key


@dataclass(frozen=True)
class FileEntry:
    """One file: its size in bytes and its SHA-256 in hexadecimal."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class PassEntry:
    """What one pass did to a role's graph."""

    name: str
    count: int


@dataclass(frozen=True)
class EngineNeeds:
    """What a machine must have to run an engine. None and an empty list: nothing of the kind is asked for.

    `onnxruntime` is the oldest version that reads the file, `instruction_sets` those without which it does not run at
    all, `sm` the compute capability that it was compiled for ("90").
    """

    onnxruntime: str | None = None
    opset: int | None = None
    ir_version: int | None = None
    instruction_sets: tuple[str, ...] = ()
    sm: str | None = None


@dataclass(frozen=True)
class EngineEntry:
    """One engine: the file that is opened, the format of its linear layers, and what it needs.

    `reproducible` says what a second build has in common with this one: "bytes" (the same file) or "graph" (only the
    graph that was compiled). `row_bytes` is what one row of a step takes between the layers, at most, without logits.
    """

    path: str
    weights: str
    needs: EngineNeeds = EngineNeeds()
    reproducible: str = "bytes"
    row_bytes: int = 0


@dataclass(frozen=True)
class RoleEntry:
    """Target or draft: where it came from, what was done to it, and its engines by kind ("cpu")."""

    source: str
    source_sha256: str
    facts: GraphFacts
    passes: tuple[PassEntry, ...]
    engines: Mapping[str, EngineEntry]
    tokenizer_sha256: str | None = None


@dataclass(frozen=True)
class Manifest:
    """All of it. `recipe` is the recipe as it was followed; `tools` maps package names to versions.

    `calibration_sha256` is the digest of the calibration that the formats were set by, None where none was needed.
    """

    schema_version: int
    name: str
    roles: Mapping[str, RoleEntry]
    recipe: Mapping[str, Any]
    tools: Mapping[str, str]
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    calibration_sha256: str | None = None

    def to_json(self) -> str:
        """Canonical JSON: equal manifests are equal texts."""
        content = asdict(self)
        return _canonical({**content, SEAL: _digest(_canonical(content))})

    @staticmethod
    def from_json(text: str) -> "Manifest":
        """The manifest that `to_json` wrote. Raises: ValueError or RecursionError for anything else."""
        raw = json.loads(text)
        if not isinstance(raw, dict):
            raise ValueError("the whole: not an object")
        raw.pop(SEAL, None)
        manifest = value_from_json(Manifest, raw)
        if manifest.to_json() != text:
            raise ValueError(f"{SEAL}: not that of this content, or not as a build writes it")
        return manifest


def _canonical(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
