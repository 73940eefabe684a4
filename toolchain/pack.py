"""The last stage of a build: text files, report and manifest beside the graphs and engines.

A staging folder with graphs and engines flows in; the same folder with everything that opening needs flows out. The
manifest is written last, over files that will not change any more.
"""

import json
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from ..passes.calibration import json_from_roles
from ..runtime.bundle import file_entry
from ..runtime.manifest import MANIFEST, SCHEMA_VERSION, Manifest
from .build_report import BuildReport
from .recipe import Recipe, bytes_from_text

__all__ = ["pack_bundle"]

CALIBRATION = "calibration.json"
TOOLS = ("paceline", "torch", "transformers", "onnx", "onnx-ir", "onnxscript", "numpy", "gguf", "tokenizers")


def pack_bundle(staging: Path, recipe: Recipe, tokenizer_files: Mapping[str, bytes], report: BuildReport) -> None:
    """Complete the bundle in `staging`."""
    for name, content in tokenizer_files.items():
        (staging / name).write_bytes(content)
    reports = staging / "reports"
    reports.mkdir()
    (reports / "build.json").write_text(json.dumps(report.as_dict(), indent=2) + "\n")
    (reports / "accuracy.json").write_text(report.accuracy_json())
    calibrations = {role: one.result.target.calibration for role, one in report.roles.items()}
    if any(one.linears for one in calibrations.values()):
        (staging / CALIBRATION).write_text(json_from_roles(calibrations))
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        name=recipe.meta.name or report.output.name,
        roles={role: entry.entry for role, entry in report.roles.items()},
        recipe=_recipe_as_followed(recipe),
        tools=_tool_versions(),
        files=_files_in(staging),
    )
    (staging / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")


def _recipe_as_followed(recipe: Recipe) -> dict[str, Any]:
    """The recipe with sizes as numbers: the runtime reads no units."""
    followed = recipe.model_dump(mode="json")
    followed["runtime"]["kv_cache_bytes"] = bytes_from_text(recipe.runtime.kv_cache_memory)
    return followed


def _tool_versions() -> dict[str, str]:
    return {"python": ".".join(map(str, sys.version_info[:3])), **{name: metadata.version(name) for name in TOOLS}}


def _files_in(folder: Path) -> dict[str, Any]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_entry(path) for path in paths}
