"""What two bundles have in common and what not, by parts that a reviewer asks for: recipe, sources, passes, figures.

Two bundle folders flow in; sections flow out, each a list of entries with both sides. Only what says something about
the model counts: names, the folders that checkpoints lay in, and reports with a clock's time differ between builds of
the very same thing and are left out. Comparing bytes was the alternative and lost: it says that, and never what.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runtime.bundle import read_manifest
from ..runtime.manifest import Manifest, RoleEntry
from .flat_json import flat_json, largest_change

__all__ = ["Difference", "diff_bundles"]

CALIBRATION = "calibration.json"
ACCURACY = "reports/accuracy.json"
REPORTS = "reports/"
PLACES = ("target.checkpoint", "draft.checkpoint")  # where they lay; what they are is among the sources


@dataclass(frozen=True)
class Difference:
    """One entry: its place, what each side has (None: nothing), and how far numbers moved, relative to the larger."""

    where: str
    first: object
    second: object
    change: float | None = None

    def as_dict(self) -> dict[str, object]:
        """The same as a JSON object."""
        return {"where": self.where, "first": self.first, "second": self.second, "change": self.change}


@dataclass(frozen=True)
class Side:
    """One bundle: its manifest, and its files of figures where it has them."""

    folder: Path
    manifest: Manifest

    def figures(self, name: str) -> Mapping[str, Any]:
        """A JSON file of the bundle by dotted names; empty where there is none, or none that can be read."""
        if name not in self.manifest.files:
            return {}
        try:
            return flat_json(json.loads((self.folder / name).read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError):
            return {"": f"{name} cannot be read"}


def diff_bundles(first: Path, second: Path) -> Mapping[str, tuple[Difference, ...]]:
    """Every section with its differences, empty ones included; nothing differs if all are. Raises: BundleError."""
    one, two = (Side(folder, read_manifest(folder)) for folder in (first, second))
    found = {name: tuple(_compare(entries(one), entries(two))) for name, entries in SECTIONS.items()}
    said = {entry.where for entry in found["sizes"]}
    return {**found, "contents": tuple(entry for entry in found["contents"] if entry.where not in said)}


def _compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Difference]:
    """Entries that are not equal; of numbers those first that moved furthest."""
    names = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    found = [_difference(name, first.get(name), second.get(name)) for name in names]
    yield from sorted(found, key=lambda one: -(one.change or 0.0))


def _difference(name: str, first: Any, second: Any) -> Difference:
    change = largest_change(first, second)
    if isinstance(first, list) or isinstance(second, list):
        return Difference(name, _briefly(first), _briefly(second), change)
    return Difference(name, first, second, change)


def _briefly(value: object) -> object:
    return f"{len(value)} numbers" if isinstance(value, list) else value


def _recipe(side: Side) -> Mapping[str, Any]:
    recipe = {key: value for key, value in side.manifest.recipe.items() if key != "meta"}
    return {key: value for key, value in flat_json(recipe).items() if key not in PLACES}


def _sources(side: Side) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for role, entry in side.manifest.roles.items():
        found[f"{role}.source_sha256"] = entry.source_sha256
        found[f"{role}.tokenizer_sha256"] = entry.tokenizer_sha256
        found |= flat_json(_facts(entry), f"{role}.facts")
    return found


def _facts(entry: RoleEntry) -> Mapping[str, Any]:
    facts = vars(entry.facts)
    return {**facts, "layers": [f"{layer.kv_heads} x {layer.head_dim}" for layer in entry.facts.layers]}


def _passes(side: Side) -> Mapping[str, Any]:
    """Rewrites by role and pass; a pass that runs several times counts by turn."""
    found: dict[str, Any] = {}
    for role, entry in side.manifest.roles.items():
        for one in entry.passes:
            name = f"{role}.{one.name}"
            turn = sum(other == name or other.startswith(f"{name} (") for other in found)
            found[f"{name} ({turn + 1})" if turn else name] = one.count
    return found


def _engines(side: Side) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for role, entry in side.manifest.roles.items():
        for kind, engine in entry.engines.items():
            needs = {**vars(engine.needs), "instruction_sets": ", ".join(engine.needs.instruction_sets)}
            found |= flat_json({"weights": engine.weights, "needs": needs}, f"{role}.{kind}")
    return found


def _scales(side: Side) -> Mapping[str, Any]:
    return side.figures(CALIBRATION)


def _accuracy(side: Side) -> Mapping[str, Any]:
    return side.figures(ACCURACY)


def _sizes(side: Side) -> Mapping[str, Any]:
    return {name: entry.size_bytes for name, entry in _compared_files(side)}


def _contents(side: Side) -> Mapping[str, Any]:
    return {name: entry.sha256 for name, entry in _compared_files(side)}


def _compared_files(side: Side) -> list[tuple[str, Any]]:
    return [(name, entry) for name, entry in side.manifest.files.items() if not name.startswith(REPORTS)]


def _tools(side: Side) -> Mapping[str, Any]:
    return side.manifest.tools


SECTIONS: Mapping[str, Callable[[Side], Mapping[str, Any]]] = {
    "recipe": _recipe,
    "sources": _sources,
    "passes": _passes,
    "engines": _engines,
    "scales": _scales,
    "accuracy": _accuracy,
    "sizes": _sizes,
    "contents": _contents,
    "tools": _tools,
}
