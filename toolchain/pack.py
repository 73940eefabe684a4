"""The last stage of a build: text files, report and manifest beside the graphs and engines.

A staging folder with graphs and engines flows in; the same folder with everything that opening needs flows out. The
manifest is written last, over files that will not change any more.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from ..passes.calibration import json_from_roles
from ..runtime.bundle_files import file_entry
from ..runtime.manifest import MANIFEST, SCHEMA_VERSION, FileEntry, Manifest, RoleEntry
from .build_report import BuildReport
from .engine_facts import with_needs
from .recipe import Recipe, bytes_from_text
from .verify_page import verify_html

__all__ = ["pack_bundle"]

CALIBRATION = "calibration.json"
TOOLS = (
    "gguf",
    "huggingface-hub",
    "numpy",
    "onnx",
    "onnx-ir",
    "onnxruntime",
    "onnxscript",
    "paceline",
    "safetensors",
    "tokenizers",
    "torch",
    "transformers",
)


def pack_bundle(staging: Path, recipe: Recipe, tokenizer_files: Mapping[str, bytes], report: BuildReport) -> None:
    """Complete the bundle in `staging`."""
    for name, content in tokenizer_files.items():
        (staging / name).write_bytes(content)
    reports = staging / "reports"
    reports.mkdir()
    (reports / "build.json").write_text(json.dumps(report.as_dict(), indent=2) + "\n")
    (reports / "accuracy.json").write_text(report.accuracy_json())
    if recipe.verifies:
        verified = {role: one.result.verified.as_dict() for role, one in report.roles.items()}
        (reports / "verify.json").write_text(json.dumps(verified, indent=2) + "\n")
        (reports / "verify.html").write_text(verify_html(recipe.meta.name or report.output.name, verified))
    calibrations = {role: one.result.target.calibration for role, one in report.roles.items()}
    if any(one.linears for one in calibrations.values()):
        (staging / CALIBRATION).write_text(json_from_roles(calibrations))
    files = _files_in(staging)
    calibration = files.get(CALIBRATION)
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        name=recipe.meta.name or report.output.name,
        roles={role: _with_needs(entry.entry, staging) for role, entry in report.roles.items()},
        recipe=_recipe_as_followed(recipe),
        tools=dict(_tool_versions()),
        files=files,
        calibration_sha256=None if calibration is None else calibration.sha256,
    )
    (staging / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")


def _recipe_as_followed(recipe: Recipe) -> dict[str, Any]:
    """The recipe with sizes as numbers: the runtime reads no units."""
    followed = recipe.model_dump(mode="json")
    followed["runtime"]["kv_cache_bytes"] = bytes_from_text(recipe.runtime.kv_cache_memory)
    return followed


def _with_needs(role: RoleEntry, staging: Path) -> RoleEntry:
    return replace(role, engines={kind: with_needs(engine, staging) for kind, engine in role.engines.items()})


def _tool_versions() -> Iterator[tuple[str, str]]:
    """Every tool that is installed here: not all builds need all of them."""
    yield "python", ".".join(map(str, sys.version_info[:3]))
    for name in TOOLS:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


def _files_in(folder: Path) -> dict[str, FileEntry]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_entry(path) for path in paths}
