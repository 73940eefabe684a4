"""The bundle's table of contents: what lies in it, what it was made of, and what an engine needs.

Dataclasses flow in at build time and one canonical JSON file flows out (sorted keys, one form of every number); at load
time the same the other way round. pydantic lost here: a manifest is written by us, checked by digest, and the deploy
box should not pay for a validator.

    bundle/
        manifest.json
        graph/<role>.onnx, .onnx.data          portable graph, runs on any stock onnxruntime
        engines/<kind>/<role>.onnx, .onnx.data
        tokenizer.json  chat_template.jinja  generation_config.json
        reports/build.json
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..plugins.contract import GraphFacts, LayerCache

__all__ = ["MANIFEST", "SCHEMA_VERSION", "EngineEntry", "FileEntry", "Manifest", "PassEntry", "RoleEntry"]

MANIFEST = "manifest.json"
SCHEMA_VERSION = 1


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
class EngineEntry:
    """One engine: the file that is opened and the format of its linear layers."""

    path: str
    weights: str


@dataclass(frozen=True)
class RoleEntry:
    """Target or draft: where it came from, what was done to it, and its engines by kind ("cpu")."""

    source: str
    source_sha256: str
    facts: GraphFacts
    passes: tuple[PassEntry, ...]
    engines: Mapping[str, EngineEntry]


@dataclass(frozen=True)
class Manifest:
    """All of it. `recipe` is the recipe as it was followed; `tools` maps package names to versions."""

    schema_version: int
    name: str
    roles: Mapping[str, RoleEntry]
    recipe: Mapping[str, Any]
    tools: Mapping[str, str]
    files: Mapping[str, FileEntry] = field(default_factory=dict)

    def to_json(self) -> str:
        """Canonical JSON: equal manifests are equal texts."""
        return json.dumps(asdict(self), indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str) -> "Manifest":
        """The manifest that `to_json` wrote. Raises: KeyError, TypeError, ValueError for anything else."""
        raw = json.loads(text)
        return Manifest(
            schema_version=raw["schema_version"],
            name=raw["name"],
            roles={role: _role_from(entry) for role, entry in raw["roles"].items()},
            recipe=raw["recipe"],
            tools=raw["tools"],
            files={path: FileEntry(**entry) for path, entry in raw["files"].items()},
        )


def _role_from(raw: Mapping[str, Any]) -> RoleEntry:
    return RoleEntry(
        source=raw["source"],
        source_sha256=raw["source_sha256"],
        facts=_facts_from(raw["facts"]),
        passes=tuple(PassEntry(**entry) for entry in raw["passes"]),
        engines={kind: EngineEntry(**entry) for kind, entry in raw["engines"].items()},
    )


def _facts_from(raw: Mapping[str, Any]) -> GraphFacts:
    return GraphFacts(**{**raw, "layers": tuple(LayerCache(**layer) for layer in raw["layers"])})
