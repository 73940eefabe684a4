"""Damaged checkpoints: whatever a file holds, the outcome is a model or an error of ours, never a stack trace.

Files are cut short and bytes are changed at random (seeded, and printed with what was changed), and sizes in
configurations are made absurd. A change that gives another sound file (a weight, a name nobody reads) may load.
"""

import json
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from tiny_bundles import tiny_checkpoint
from tiny_gguf import write_gguf
from tiny_models import SIZES, RandomCheckpoint
from transformers import LlamaConfig

from paceline.plugins.errors import PacelineError
from paceline.toolchain.attention_hook import attention_hook
from paceline.toolchain.bind_weights import check_weights
from paceline.toolchain.check_numbers import check_numbers
from paceline.toolchain.checkpoint import open_checkpoint
from paceline.toolchain.cli import main
from paceline.toolchain.errors import CheckpointError
from paceline.toolchain.export import untouched_model

NUM_CASES = 60
SEED = 20261201
GGUF_HEADER_BYTES = 3584  # of the file below, about: names, types, offsets; behind it come weights


def load(source: Path) -> None:
    """All that a build reads of a checkpoint before it exports."""
    checkpoint = open_checkpoint(str(source))
    with attention_hook():
        check_weights(untouched_model(checkpoint), checkpoint)
    check_numbers(checkpoint)
    checkpoint.tokenizer_files()


def damaged(good: bytes, header_bytes: int, rng: np.random.Generator) -> tuple[bytes, str]:
    """The file cut short, or with up to three bytes changed, in its header mostly; and what was done."""
    kind = rng.integers(4)
    if kind == 0:
        length = int(rng.integers(len(good)))
        return good[:length], f"cut to {length} bytes"
    data = bytearray(good)
    places = rng.integers(header_bytes if kind < 3 else len(good), size=rng.integers(1, 4))
    for place in places:
        data[place] = rng.integers(256)
    return bytes(data), f"bytes {places.tolist()} changed"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("good") / "model", num_layers=1)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "bad"))


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "model.gguf"
    checkpoint = RandomCheckpoint(LlamaConfig(**{**SIZES, "intermediate_size": 64}))
    return write_gguf(path, "llama", checkpoint, kind=gguf.GGMLQuantizationType.Q8_0)


def check_all(good: Path, header_bytes: int, victim: Path, source: Path) -> None:
    rng = np.random.default_rng(SEED)
    original, refused = good.read_bytes(), 0
    for case in range(NUM_CASES):
        data, what = damaged(original, header_bytes, rng)
        victim.write_bytes(data)
        try:
            load(source)
        except PacelineError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {SEED}, case {case}: {good.name} with {what} raised {error!r}") from error
    victim.write_bytes(original)
    load(source)
    assert refused > NUM_CASES // 2


def test_safetensors(folder: Path, copy: Path) -> None:
    good = folder / "model.safetensors"
    header_bytes = 8 + int.from_bytes(good.read_bytes()[:8], "little")
    check_all(good, header_bytes, copy / good.name, copy)


def test_gguf(gguf_file: Path, tmp_path: Path) -> None:
    check_all(gguf_file, GGUF_HEADER_BYTES, tmp_path / "bad.gguf", tmp_path / "bad.gguf")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_json(folder: Path, copy: Path, name: str) -> None:
    check_all(folder / name, (folder / name).stat().st_size, copy / name, copy)


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": 10**9},
        {"hidden_size": 0},
        {"hidden_size": -64},
        {"num_attention_heads": 0},
        {"num_key_value_heads": 0},
        {"num_key_value_heads": 3},
        {"head_dim": 0},
        {"vocab_size": 10**12},
        {"max_position_embeddings": 0},
        {"rms_norm_eps": -1.0},
        {"rms_norm_eps": float("nan")},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 0}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": None}},
        {"hidden_act": "nonsense"},
        {"layer_types": 7},
        {"model_type": None},
        {"model_type": "bert"},
    ],
    ids=str,
)
def test_absurd_configurations_are_refused(copy: Path, change: dict[str, object]) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(PacelineError):
        load(copy)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 2**31 - 1),
        ("block_count", "two"),
        ("embedding_length", 0),
        ("attention.head_count", 0),
        ("attention.head_count_kv", 0),
        ("attention.key_length", 15),
        ("context_length", 0),
        ("rope.freq_base", 0.0),
        ("attention.layer_norm_rms_epsilon", float("nan")),
    ],
)
def test_absurd_metadata_are_refused(tmp_path: Path, key: str, value: object) -> None:
    checkpoint = RandomCheckpoint(LlamaConfig(**SIZES))
    path = write_gguf(tmp_path / "model.gguf", "llama", checkpoint, metadata={key: value})
    with pytest.raises(PacelineError):
        load(path)


def test_a_metadata_array_longer_than_its_file_is_refused_at_once(gguf_file: Path, tmp_path: Path) -> None:
    """The old bug: one byte turned a string into an array of 10^18 numbers, and the reader walked through them."""
    data = bytearray(gguf_file.read_bytes())
    value_type = data.index(b"general.architecture") + len(b"general.architecture")
    data[value_type] = gguf.GGUFValueType.ARRAY
    path = tmp_path / "bad.gguf"
    path.write_bytes(bytes(data))
    with pytest.raises(CheckpointError, match=r"an array of \d+ entries"):
        load(path)


@pytest.mark.parametrize("shard", ["../model.safetensors", "/etc/passwd", "config.json", ".", 5, None])
def test_an_index_reads_safetensors_of_its_folder_only(copy: Path, shard: object) -> None:
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(CheckpointError, match=r"index\.json"):
        load(copy)


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    line = ["paceline", "export", "", "-o", str(tmp_path / "graph.onnx")]
    monkeypatch.setattr(sys, "argv", line)
    return line


@pytest.mark.parametrize("damage", ["header", "weights"])
def test_the_command_line_says_what_to_do(
    copy: Path, damage: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray((copy / "model.safetensors").read_bytes())
    if damage == "header":
        data[9] ^= 0x80
    else:
        data[-4:] = np.float32(np.nan).tobytes()
    (copy / "model.safetensors").write_bytes(bytes(data))
    arguments[2] = str(copy)
    with pytest.raises(SystemExit) as caught:
        main()
    printed = capsys.readouterr().err
    assert caught.value.code == 2
    assert "CheckpointError" in printed
    assert "do:" in printed
    assert "Traceback" not in printed
    assert damage == "header" or "has 1 numbers that are not finite, the first (NaN) at" in printed
