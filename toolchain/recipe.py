"""The recipe: one YAML file that says everything a build depends on, checked before anything runs.

A file flows in, a frozen `Recipe` flows out. Unknown keys are refused with the nearest known one; a key that the design
names but that nothing honours yet is refused as "not available yet" instead of being read and forgotten.
"""

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ValidationError, model_validator

from .errors import RecipeError
from .recipe_parts import (
    Build,
    CalibrationOptions,
    DraftModel,
    Gates,
    KvCache,
    Meta,
    Part,
    PassOptions,
    Quantization,
    Runtime,
    Speculation,
    TargetModel,
    bytes_from_text,
)

__all__ = [
    "CACHE_DTYPES",
    "DraftModel",
    "Recipe",
    "bytes_from_text",
    "load_recipe",
    "recipe_json_schema",
    "with_overrides",
    "write_schema",
]

CACHE_DTYPES = {
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp8": "float8e4m3fn",
}  # kv_cache.dtype as plugins/contract.py names it

SHIPPED_TEXT = ("calibration", "heldout")  # see sample_text.py, which this file must not load: it is heavy
NOT_YET = ("lossless", "speedup", "profiles")  # keys of the design that nothing honours yet


class Recipe(Part):
    """A whole recipe."""

    schema_version: Literal[1] = 1
    meta: Meta = Meta()
    target: TargetModel
    draft: DraftModel | None = None
    passes: Mapping[str, PassOptions] = {}
    quantization: Quantization = Quantization()
    calibration: CalibrationOptions = CalibrationOptions()
    gates: Gates = Gates()
    kv_cache: KvCache = KvCache()
    build: Build = Build()
    runtime: Runtime = Runtime()
    speculation: Speculation = Speculation()

    @property
    def opens_draft(self) -> bool:
        """Whether requests are drafted for by the draft engine unless they say otherwise: only then it is opened."""
        return self.draft is not None and self.speculation.method in ("draft", "auto")

    @property
    def kv_cache_bytes(self) -> int:
        """Memory of the page pools."""
        return bytes_from_text(self.runtime.kv_cache_memory)

    @model_validator(mode="after")
    def _fits_together(self) -> "Recipe":
        if self.speculation.method == "draft" and self.draft is None:
            raise ValueError("speculation.method is 'draft' but there is no 'draft:'")
        if self.draft and self.draft.checkpoint == "target" and not self.draft.layers:
            raise ValueError("draft.checkpoint is 'target': say which of its layers, e.g. layers: 0-3")
        if self.speculation.prompt_lookup_min > self.speculation.prompt_lookup_max:
            raise ValueError("speculation.prompt_lookup_min is larger than prompt_lookup_max")
        if self.gates.accuracy is not None and not self.gates.accuracy.has_limits:
            raise ValueError("gates.accuracy sets no limit: give max_kl, min_top1 or max_ppl_increase")
        return self

    @property
    def verifies(self) -> bool:
        """Whether the numbers behind each pass are checked."""
        return self.gates.accuracy is not None if self.build.verify is None else self.build.verify


def load_recipe(path: Path, overrides: Mapping[str, object] | None = None) -> Recipe:
    """The recipe at `path`, with `overrides` such as {"runtime.max_num_seqs": 8} laid over it.

    Relative checkpoint paths count from the recipe's folder. Raises: RecipeError.
    """
    document = _read_yaml(path)
    for dotted, value in (overrides or {}).items():
        _set(document, dotted.split("."), value)
    try:
        recipe = Recipe.model_validate(document)
    except ValidationError as error:
        raise _recipe_error(path, error) from None
    return _with_absolute_paths(recipe, path.parent)


def with_overrides(recipe: Recipe, overrides: Mapping[str, object]) -> Recipe:
    """`recipe` with keys such as {"runtime.max_num_seqs": 8} laid over it. The values must be valid."""
    document = recipe.model_dump()
    for dotted, value in overrides.items():
        _set(document, dotted.split("."), value)
    return Recipe.model_validate(document)


def recipe_json_schema() -> dict[str, Any]:
    """JSON schema of a recipe, for editors."""
    return Recipe.model_json_schema()


def write_schema(path: Path) -> None:
    """Write the schema as recipes/schema.json holds it."""
    path.write_text(json.dumps(recipe_json_schema(), indent=2) + "\n")


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError(
            f"{path} cannot be read ({error})", needed="a recipe in YAML", do="check the path, or mend the line"
        ) from None
    if not isinstance(document, dict):
        raise RecipeError(f"{path} holds no mapping", needed="keys such as 'target:'", do="see recipes/ for examples")
    return document


def _set(document: dict[str, Any], keys: list[str], value: object) -> None:
    for key in keys[:-1]:
        child = document.get(key)
        if not isinstance(child, dict):
            child = document[key] = {}
        document = child
    document[keys[-1]] = value


def _recipe_error(path: Path, error: ValidationError) -> RecipeError:
    errors = error.errors()
    # A misspelt key is told before the key that it leaves missing.
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    where = ".".join(str(key) for key in first["loc"])
    if first["type"] == "extra_forbidden":
        return _unknown_key(path, where)
    found = f"{path.name}: {where + ' = ' + repr(first['input']) if where else 'keys that do not fit together'}"
    return RecipeError(found, needed=first["msg"].removeprefix("Value error, "), do=f"correct {where or 'the recipe'}")


def _unknown_key(path: Path, where: str) -> RecipeError:
    *parents, key = where.split(".")
    if key in NOT_YET:
        return RecipeError(
            f"{path.name}: {where}", needed="a key that is available", do="leave it out: not available yet"
        )
    known = _known_keys(parents)
    nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
    do = f"did you mean '{nearest[0]}'?" if nearest else "leave it out"
    return RecipeError(f"{path.name}: unknown key {where}", needed=f"one of {', '.join(known)}", do=do)


def _known_keys(parents: list[str]) -> list[str]:
    part: Any = Recipe
    for parent in parents:
        annotation = part.model_fields[parent].annotation if parent in part.model_fields else PassOptions
        part = next(
            (kind for kind in (annotation, *getattr(annotation, "__args__", ())) if _is_part(kind)), PassOptions
        )
    return sorted(part.model_fields)


def _is_part(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Part)


def _with_absolute_paths(recipe: Recipe, folder: Path) -> Recipe:
    update: dict[str, object] = {
        "target": TargetModel(checkpoint=_absolute(recipe.target.checkpoint, folder)),
    }
    if recipe.draft is not None and recipe.draft.checkpoint != "target":
        update["draft"] = recipe.draft.model_copy(update={"checkpoint": _absolute(recipe.draft.checkpoint, folder)})
    calibration, accuracy = recipe.calibration, recipe.gates.accuracy
    file = None if calibration.file is None else _absolute(calibration.file, folder)
    dataset = _absolute(calibration.dataset, folder)
    update["calibration"] = calibration.model_copy(update={"file": file, "dataset": dataset})
    if accuracy is not None:
        absolute = accuracy.model_copy(update={"dataset": _absolute(accuracy.dataset, folder)})
        update["gates"] = Gates(accuracy=absolute)
    return recipe.model_copy(update=update)


def _absolute(source: str, folder: Path) -> str:
    if source.startswith(("pypi:", "hf:")) or source in SHIPPED_TEXT:
        return source
    path = Path(source).expanduser()
    return str(path if path.is_absolute() else (folder / path).resolve())
