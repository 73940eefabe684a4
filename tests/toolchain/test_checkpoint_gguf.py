"""GGUF files: tiny ones of each family against the weights they were written from, and the damage that must be named.

The files are written by tests/tiny_gguf.py. The old bugs: q and k rows left interleaved give fluent nonsense; a RoPE
scaling that is passed over gives a model that is right for the first few thousand tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from tiny_gguf import TEMPLATE, Tensors, default_metadata, write_gguf
from tiny_models import FAMILIES, LLAMA3_ROPE, SIZES, WINDOW, RandomCheckpoint
from tokenizers import Tokenizer
from transformers import Gemma2Config, Gemma3TextConfig, LlamaConfig, Phi3Config, PretrainedConfig, Qwen2Config
from transformers.integrations.gguf.kernels import dequantize_blocks

from paceline.plugins.errors import PacelineError
from paceline.toolchain.checkpoint import open_checkpoint
from paceline.toolchain.checkpoint_gguf import GgufCheckpoint
from paceline.toolchain.errors import ArchitectureError, CheckpointError

GEMMA = {**SIZES, "sliding_window": WINDOW, "query_pre_attn_scalar": 256}  # what a GGUF file can express
SOFTCAPS = {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0}


@dataclass(frozen=True)
class Case:
    """A family as GGUF stores it."""

    architecture: str
    config: PretrainedConfig
    metadata: dict[str, object] = field(default_factory=dict)


CASES = {
    "llama": Case("llama", FAMILIES["llama"]),
    "llama3_tied": Case("llama", FAMILIES["llama3_tied"]),
    "qwen2": Case("qwen2", Qwen2Config(**{**SIZES, "head_dim": 8})),
    "qwen3": Case("qwen3", FAMILIES["qwen3"]),
    "gemma2": Case("gemma2", Gemma2Config(**GEMMA, **SOFTCAPS), {"attention.sliding_window": WINDOW, **SOFTCAPS}),
    "gemma3": Case("gemma3", Gemma3TextConfig(**GEMMA), {"attention.sliding_window": WINDOW}),
    "phi3": Case("phi3", Phi3Config(**SIZES, sliding_window=WINDOW), {"attention.sliding_window": WINDOW}),
}


@pytest.fixture(scope="module")
def llama() -> RandomCheckpoint:
    return RandomCheckpoint(FAMILIES["llama"])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_names_shapes_and_numbers_are_those_of_the_model(case: Case, tmp_path: Path) -> None:
    model = RandomCheckpoint(case.config)
    read = open_checkpoint(str(write_gguf(tmp_path / "m.gguf", case.architecture, model, metadata=case.metadata)))
    assert read.names() == tuple(sorted(model.names()))
    for name in model.names():
        assert read.shape(name) == model.shape(name)
        array = read.read(name)
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, model.read(name), rtol=0, atol=2e-7, err_msg=name)  # Gemma's + 1 - 1
        for start, stop in ((0, 5), (5, 20)):
            np.testing.assert_array_equal(read.read_rows(name, start, stop), array[start:stop], err_msg=name)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_configuration_is_that_of_the_model(case: Case, tmp_path: Path) -> None:
    """Everything but the ids of special tokens, which the vocabulary brings."""
    path = write_gguf(tmp_path / "m.gguf", case.architecture, RandomCheckpoint(case.config), metadata=case.metadata)
    found, wanted = GgufCheckpoint(path).config.to_dict(), case.config.to_dict()
    # `architectures` is written into a configuration when a model is made of it, also by the tests before this one.
    free = {"bos_token_id", "eos_token_id", "pad_token_id", "dtype", "rms_norm_eps", "use_cache", "architectures"}
    for key in wanted.keys() - free:
        assert found[key] == wanted[key], key
    assert found["rms_norm_eps"] == pytest.approx(wanted["rms_norm_eps"], rel=1e-6)
    assert (found["bos_token_id"], found["eos_token_id"]) == (1, 0)


def test_linear_rope_scaling_is_honoured(llama: RandomCheckpoint, tmp_path: Path) -> None:
    said = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    config = GgufCheckpoint(write_gguf(tmp_path / "m.gguf", "llama", llama, metadata=said)).config
    assert config.rope_parameters["rope_type"] == "linear"
    assert config.rope_parameters["factor"] == 4.0


@pytest.mark.parametrize("original_length", [32, 100, 8192])
@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_scaling_is_recovered_from_its_divisors(original_length: int, factor: float, tmp_path: Path) -> None:
    rope = {**LLAMA3_ROPE, "factor": factor, "original_max_position_embeddings": original_length, "rope_theta": 5e5}
    config = LlamaConfig(**{**SIZES, "head_dim": 64}, rope_parameters=rope)
    path = write_gguf(tmp_path / "m.gguf", "llama", RandomCheckpoint(config))
    assert GgufCheckpoint(path).config.rope_parameters == rope


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1], ids=lambda kind: kind.name)
def test_every_simple_format_is_read(kind: Kind, tmp_path: Path) -> None:
    """Within half a step of the format: 2^-11 and 2^-8 relative, or of the largest in 32 numbers /127, /8 and /15."""
    model = RandomCheckpoint(LlamaConfig(**{**SIZES, "intermediate_size": 64}))
    read = GgufCheckpoint(write_gguf(tmp_path / "m.gguf", "llama", model, kind=kind))
    step = {Kind.F16: 2**-11, Kind.BF16: 2**-8, Kind.Q8_0: 1 / 127, Kind.Q4_0: 1 / 8, Kind.Q4_1: 2 / 15}[kind]
    name = "model.layers.1.mlp.down_proj.weight"
    error = np.abs(read.read(name) - model.read(name))
    assert 0 < error.max() <= 1.01 * step * np.abs(model.read(name)).max()
    for large in ("model.embed_tokens.weight", "lm_head.weight"):
        np.testing.assert_array_equal(read.read_rows(large, 7, 60), read.read(large)[7:60])


@pytest.mark.parametrize("kind", [Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K], ids=lambda kind: kind.name)
def test_k_quants_are_read_as_transformers_reads_them(kind: Kind, tmp_path: Path) -> None:
    """gguf cannot write them, so random blocks are; transformers' dequantisation is an independent one, in torch."""
    config = LlamaConfig(**{**SIZES, "hidden_size": 256, "head_dim": 64})
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(0).integers(0, 60, (config.vocab_size, 256 // elements * size), dtype=np.uint8)
    path = _write_with_raw_embedding(tmp_path / "m.gguf", config, blocks, kind)
    expected = dequantize_blocks(torch.from_numpy(blocks), int(kind), len(blocks), 256, torch.float32).numpy()
    assert np.isfinite(expected).all()
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(GgufCheckpoint(path).read("model.embed_tokens.weight"), expected, rtol=1e-6)


def _write_with_raw_embedding(path: Path, config: PretrainedConfig, blocks: np.ndarray, kind: Kind) -> Path:
    """A file with nothing but metadata and an embedding of raw blocks."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in default_metadata(config).items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"llama.{key}", value)
    writer.add_tensor("token_embd.weight", blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_tokenizer_files_come_from_the_metadata(llama: RandomCheckpoint, tmp_path: Path) -> None:
    files = GgufCheckpoint(write_gguf(tmp_path / "m.gguf", "llama", llama)).tokenizer_files()
    assert files["chat_template.jinja"].decode() == TEMPLATE
    assert files["generation_config.json"] == b'{\n  "bos_token_id": 1,\n  "eos_token_id": [\n    0,\n    2\n  ]\n}\n'
    tokenizer = Tokenizer.from_buffer(files["tokenizer.json"])
    assert tokenizer.encode("<|im_start|>ABBA<|im_end|>").tokens == ["<|im_start|>", "AB", "B", "A", "<|im_end|>"]


@pytest.mark.parametrize("adds_bos", [False, True])
def test_bos_is_added_once_where_the_file_says_so(adds_bos: bool, llama: RandomCheckpoint, tmp_path: Path) -> None:
    files = GgufCheckpoint(write_gguf(tmp_path / "m.gguf", "llama", llama, adds_bos=adds_bos)).tokenizer_files()
    tokenizer = Tokenizer.from_buffer(files["tokenizer.json"])
    assert tokenizer.encode("A").tokens == (["<|im_start|>", "A"] if adds_bos else ["A"])
    assert tokenizer.encode("A", add_special_tokens=False).tokens == ["A"]


def test_an_unknown_way_of_splitting_text_is_refused(llama: RandomCheckpoint, tmp_path: Path) -> None:
    read = GgufCheckpoint(write_gguf(tmp_path / "m.gguf", "llama", llama, pre="babel-fish"))
    with pytest.raises(CheckpointError, match=r"tokenizer\.ggml\.pre = 'babel-fish'"):
        read.tokenizer_files()


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}, "RoPE scaling of type 'yarn'"),
        ({"attention.sliding_window": 8}, "sliding_window, which llama does not have"),
        ({"attention.value_length": 8}, r"llama\.attention\.value_length = 8 where head_dim is 16"),
        ({"expert_count": 4}, r"llama\.expert_count = 4"),
        ({"attention.max_alibi_bias": 8.0}, r"llama\.attention\.max_alibi_bias = 8\.0"),
    ],
)
def test_metadata_that_cannot_be_kept_are_refused(
    said: dict[str, object], found: str, llama: RandomCheckpoint, tmp_path: Path
) -> None:
    with pytest.raises(ArchitectureError, match=found):
        GgufCheckpoint(write_gguf(tmp_path / "m.gguf", "llama", llama, metadata=said))


def test_what_is_zero_is_absent(llama: RandomCheckpoint, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", "llama", llama, metadata={"expert_count": 0, "attention.causal": True})
    assert GgufCheckpoint(path).names()


@pytest.mark.parametrize(
    ("change", "error", "found"),
    [
        (lambda tensors: {**tensors, "blk.0.attn_q.bias": np.ones(64, np.float32)}, CheckpointError, r"attn_q\.bias"),
        (lambda tensors: {**tensors, "blk.7.ffn_up.weight": np.ones((4, 32), np.float32)}, CheckpointError, r"blk\.7"),
        (lambda tensors: {**tensors, "rope_freqs.weight": np.full(8, 3.0, np.float32)}, ArchitectureError, "Llama 3"),
        (lambda tensors: {n: w for n, w in tensors.items() if "embd" not in n}, CheckpointError, r"token_embd\.weight"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    change: Callable[[Tensors], Tensors],
    error: type[PacelineError],
    found: str,
    llama: RandomCheckpoint,
    tmp_path: Path,
) -> None:
    with pytest.raises(error, match=found):
        GgufCheckpoint(write_gguf(tmp_path / "m.gguf", "llama", llama, change=change))


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "perceptron")
    writer.add_tensor("token_embd.weight", np.ones((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ArchitectureError, match="'perceptron'"):
        GgufCheckpoint(tmp_path / "m.gguf")


@pytest.mark.parametrize("keep", [0, 3, 20, 200, 2000, -20_000, -1])
def test_a_truncated_file_is_refused_wherever_it_was_cut(keep: int, llama: RandomCheckpoint, tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "whole.gguf", "llama", llama).read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[:keep])
    with pytest.raises(CheckpointError, match=r"cut\.gguf"):
        open_checkpoint(str(tmp_path / "cut.gguf"))


def test_the_digest_follows_the_bytes(llama: RandomCheckpoint, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", "llama", llama)
    before = GgufCheckpoint(path).digest()
    assert GgufCheckpoint(path).digest() == before
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    path.write_bytes(changed)
    assert GgufCheckpoint(path).digest() != before
