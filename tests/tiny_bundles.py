"""A tiny model with random weights as a checkpoint folder and as a bundle: the whole path in two seconds.

In: a folder. Out: a Hugging Face folder with safetensors and a byte tokenizer, or a bundle built from it.
"""

from pathlib import Path

import torch
import yaml
from tiny_tokenizers import byte_tokenizer
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

from paceline.toolchain.build import build_bundle
from paceline.toolchain.progress import Silent
from paceline.toolchain.recipe import load_recipe

__all__ = ["TEMPLATE", "tiny_bundle", "tiny_checkpoint", "tiny_recipe"]

VOCAB_SIZE = 272  # 259 tokens and some padding
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)


def tiny_checkpoint(folder: Path, seed: int = 0, num_layers: int = 3) -> Path:
    """A Llama of three layers; weights large enough that its choices are not all the same."""
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=2,
    )
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.15)
    model.save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer(), eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE
    )
    tokenizer.save_pretrained(folder)
    return folder


def tiny_recipe(folder: Path, **parts: object) -> Path:
    """A recipe beside a checkpoint in `folder`/model; `parts` are laid over it."""
    if not (folder / "model").exists():
        tiny_checkpoint(folder / "model")
    recipe = {"target": {"checkpoint": "model"}, "draft": {"checkpoint": "target", "layers": "0-1"}, **parts}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def tiny_bundle(folder: Path, **parts: object) -> Path:
    """The bundle of `tiny_recipe`."""
    build_bundle(load_recipe(tiny_recipe(folder, **parts)), folder / "bundle", Silent())
    return folder / "bundle"
