"""Checkpoints of any size, written shard by shard without ever being in memory: what streaming is tested on.

Sizes of a Llama flow in; a Hugging Face folder with bfloat16 shards, an index and a byte tokenizer flows out, beside a
recipe. transformers' own `save_pretrained` lost: it holds the model whose size is the point.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from tiny_tokenizers import byte_tokenizer
from transformers import LlamaConfig

__all__ = ["Shapes", "checkpoint_bytes", "write_checkpoint"]

Shapes = Mapping[str, tuple[int, ...]]
CHUNK_WEIGHTS = 1 << 20
HEAD_DIM = 64


def write_checkpoint(folder: Path, *, hidden: int, intermediate: int, num_layers: int, vocab_size: int) -> Path:
    """A shard a layer, one for the embedding and one for norm and head; returns the path of a recipe for it."""
    folder.mkdir(parents=True)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden // HEAD_DIM,
        num_key_value_heads=max(1, hidden // HEAD_DIM // 4),
        head_dim=HEAD_DIM,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=2,
        architectures=["LlamaForCausalLM"],
    )
    config.save_pretrained(folder)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    shards = list(_shards(config))
    weight_map = {}
    for number, shapes in enumerate(shards, start=1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _write_shard(folder / name, shapes, seed=number)
        weight_map.update(dict.fromkeys(shapes, name))
    index = {"metadata": {"total_size": checkpoint_bytes(folder)}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    recipe = folder / "recipe.yaml"
    recipe.write_text("target: {checkpoint: .}\n")
    return recipe


def checkpoint_bytes(folder: Path) -> int:
    """Size of all shards."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _shards(config: LlamaConfig) -> Iterator[Shapes]:
    hidden, inner, kv = config.hidden_size, config.intermediate_size, config.num_key_value_heads * HEAD_DIM
    yield {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for layer in range(config.num_hidden_layers):
        shapes = {
            "self_attn.q_proj": (hidden, hidden),
            "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden),
            "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
        }
        yield {f"model.layers.{layer}.{name}.weight": shape for name, shape in shapes.items()}
    yield {"model.norm.weight": (hidden,), "lm_head.weight": (config.vocab_size, hidden)}


def _write_shard(path: Path, shapes: Shapes, seed: int) -> None:
    """safetensors: the length of a JSON header, the header, the tensors' bytes; random bfloat16 of modest size."""
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    bits = np.random.default_rng(seed).integers(0, 1 << 16, CHUNK_WEIGHTS, dtype=np.uint16)
    chunk = (bits & 0x807F | 0x3C00).tobytes()  # signs and fractions at random, exponents of 0.008 to 0.016
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for start in range(0, end, len(chunk)):
            file.write(chunk[: min(len(chunk), end - start)])
