"""Manifests there and back, and what becomes of thousands that are almost right: refused by name, or opened rightly."""

import json
import random
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from manifest_edits import sealed

from paceline.runtime.bundle import open_bundle
from paceline.runtime.bundle_files import DigestCheck
from paceline.runtime.errors import BundleError, PacelineError
from paceline.runtime.manifest import Manifest
from paceline.runtime.open import open_runtime
from paceline.runtime.opening import Settings
from paceline.runtime.sampling_params import SamplingParams

SEED = 20261201
PARAMS = SamplingParams(max_tokens=6, ignore_eos=True)
CACHE_BYTES = 1 << 20
STRANGE = (
    None,
    True,
    0,
    -1,
    1,
    2,
    17,
    1 << 31,
    10**30,
    0.5,
    "",
    "x",
    "float32",
    "../x",
    "\ud800",
    [],
    {},
    [1],
    {"a": 1},
)
OPENED_ANYWAY = 25  # of the changes that nothing refuses, so many are run


def test_there_and_back(tiny_whole: Path) -> None:
    text = (tiny_whole / "manifest.json").read_text()
    assert Manifest.from_json(text).to_json() == text


def test_the_manifest_says_what_an_engine_needs(tiny_whole: Path) -> None:
    manifest = open_bundle(tiny_whole).manifest
    engine = asdict(manifest.roles["target"].engines["cpu"])
    assert engine["needs"] == {
        "onnxruntime": "1.23", "opset": 23, "ir_version": 10, "instruction_sets": (), "sm": None,
    }  # fmt: skip
    assert engine["reproducible"] == "bytes"
    assert engine["row_bytes"] > 0
    assert len(manifest.roles["draft"].tokenizer_sha256 or "") == 64
    assert {"python", "paceline", "torch", "onnxruntime"} <= manifest.tools.keys()


def test_random_bytes_changed_are_always_noticed(tiny_copy: Path, repetitions: int) -> None:
    path = tiny_copy / "manifest.json"
    good = path.read_bytes()
    chance = random.Random(SEED)
    print("seed", SEED)
    for _ in range(400 * repetitions):
        path.write_bytes(changed_bytes(good, chance))
        with pytest.raises(BundleError):
            open_bundle(tiny_copy, DigestCheck.SIZES)


def test_random_changes_that_are_sealed_again_are_refused_or_harmless(tiny_copy: Path, repetitions: int) -> None:
    """Whoever can seal can lie; what then opens must still write the tokens of the engines that are there."""
    path = tiny_copy / "manifest.json"
    good = json.loads(path.read_text())
    chance = random.Random(SEED)
    print("seed", SEED)
    expected = tokens_of(tiny_copy)
    opened = 0
    for _ in range(1500 * repetitions):
        content = json.loads(json.dumps(good))
        where = change_something(content, chance)
        path.write_bytes(sealed(content).encode("utf-8", "surrogatepass"))
        try:
            open_bundle(tiny_copy, DigestCheck.SIZES)
            if opened < OPENED_ANYWAY * repetitions and where[0] in ("roles", "recipe", "files"):
                assert tokens_of(tiny_copy) == expected, where
                opened += 1
        except PacelineError:
            continue
    assert opened > OPENED_ANYWAY // 2


def tokens_of(folder: Path) -> list[tuple[int, ...]]:
    settings = Settings(kv_cache_bytes=CACHE_BYTES, threads=1, digests=DigestCheck.SIZES)
    opened = open_runtime(folder, settings)
    with opened.runtime as runtime:
        return [tuple(one.token_ids) for one in runtime.generate([[1, 2, 3], [7] * 20], PARAMS, opened.defaults)]


def changed_bytes(good: bytes, chance: random.Random) -> bytes:
    """One of: a bit turned, a piece gone, a piece twice, a random byte more."""
    at = chance.randrange(len(good))
    piece = good[at : at + chance.randint(1, 40)]
    match chance.randrange(4):
        case 0:
            return good[:at] + bytes([good[at] ^ 1 << chance.randrange(8)]) + good[at + 1 :]
        case 1:
            return good[:at] + good[at + len(piece) :]
        case 2:
            return good[:at] + piece + good[at:]
        case _:
            return good[:at] + bytes([chance.randrange(256)]) + good[at:]


def change_something(content: dict[str, Any], chance: random.Random) -> tuple[Any, ...]:
    """Change one place: gone, renamed, something strange there, or what stands elsewhere; returns where."""
    places = list(places_in(content))
    where = chance.choice(places)
    parent: Any = content
    for key in where[:-1]:
        parent = parent[key]
    match chance.randrange(4):
        case 0:
            del parent[where[-1]]
        case 1 if isinstance(parent, dict):
            parent[f"{where[-1]}x"] = parent.pop(where[-1])
        case 2:
            parent[where[-1]] = chance.choice(STRANGE)
        case _:
            other = chance.choice(places)
            value: Any = content
            for key in other:
                value = value[key]
            parent[where[-1]] = json.loads(json.dumps(value))
    return where


def places_in(value: object, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in parsed JSON, as keys and indices from the top."""
    if where:
        yield where
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places_in(inner, (*where, key))
