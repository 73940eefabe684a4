"""Manifests that somebody changed and sealed again: what a digest of itself cannot notice, and other checks must.

In: a bundle folder and a change of its manifest as plain JSON. Out: the manifest written as a build writes it.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["edit_manifest", "sealed"]

SEAL = "manifest_sha256"


def sealed(content: dict[str, Any]) -> str:
    """`content` as the text of a manifest, with the digest of itself."""
    unsealed = {key: value for key, value in content.items() if key != SEAL}
    digest = hashlib.sha256(canonical(unsealed).encode("utf-8", "surrogatepass")).hexdigest()
    return canonical({**unsealed, SEAL: digest})


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest in `folder` and seal it."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(sealed(content))


def canonical(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
