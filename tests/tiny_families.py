"""Which architectures are tested, as data: a tiny configuration of each family, and of each that has to be refused.

`FAMILIES` and `MORE_FAMILIES` map a name to a configuration that must export and answer as transformers does; `REFUSED`
maps a name to a configuration and to words of the refusal. There is no code for any of them outside this file. Sizes
are odd enough that a mixed-up axis shows: 4 heads, 2 key/value heads where a family has grouped ones, a window of 5.
"""

from collections.abc import Mapping

import transformers as hf
from transformers import PretrainedConfig

__all__ = [
    "FAMILIES",
    "LLAMA3_ROPE",
    "MAX_POSITIONS",
    "MORE_FAMILIES",
    "MORE_REFUSED",
    "REFUSED",
    "SIZES",
    "VOCAB_SIZE",
    "WINDOW",
]

VOCAB_SIZE = 96
MAX_POSITIONS = 256
WINDOW = 5
NO_SPECIAL_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
BERT_TOKENS = {f"{name}_token_id": 0 for name in ("bos", "pad", "cls", "sep")}
WIDE = {  # hidden size = heads * head size, and every head has its own keys
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": MAX_POSITIONS,
    **NO_SPECIAL_TOKENS,
}
GROUPED = {**WIDE, "intermediate_size": 48, "num_key_value_heads": 2}
SIZES = {**GROUPED, "hidden_size": 32, "head_dim": 16}
GPT = {
    "vocab_size": VOCAB_SIZE,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": MAX_POSITIONS,
    **NO_SPECIAL_TOKENS,
}
WINDOWED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
GEMMA = {**SIZES, **WINDOWED, "query_pre_attn_scalar": 24}
MULTIPLIERS = {
    "embedding_multiplier": 3.0,
    "logits_scaling": 2.0,
    "residual_multiplier": 0.6,
    "attention_multiplier": 0.3,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def partial(factor: float) -> dict[str, object]:
    """Rotary embeddings for a part of each head."""
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": factor}}


FAMILIES: Mapping[str, PretrainedConfig] = {  # tested in every run
    "cohere2": hf.Cohere2Config(**GROUPED, **WINDOWED, logit_scale=0.5),
    "gemma2": hf.Gemma2Config(**GEMMA, attn_logit_softcapping=3.0, final_logit_softcapping=4.0),
    "gemma3": hf.Gemma3TextConfig(**GEMMA),
    "glm4": hf.Glm4Config(**SIZES, **partial(0.5)),
    "gpt2": hf.GPT2Config(**GPT),
    "gpt_neox": hf.GPTNeoXConfig(**WIDE, intermediate_size=48, **partial(0.25)),
    "granite": hf.GraniteConfig(**SIZES, **MULTIPLIERS),
    "llama": hf.LlamaConfig(**SIZES),
    "llama3_tied": hf.LlamaConfig(**SIZES, tie_word_embeddings=True, rope_scaling=LLAMA3_ROPE),
    "mistral": hf.MistralConfig(**SIZES, sliding_window=WINDOW),
    "olmo2": hf.Olmo2Config(**GROUPED),
    "phi3": hf.Phi3Config(**SIZES, sliding_window=None, partial_rotary_factor=0.5),
    "qwen2": hf.Qwen2Config(**SIZES),
    "qwen3": hf.Qwen3Config(**SIZES, tie_word_embeddings=True),
    "smollm3": hf.SmolLM3Config(**SIZES, no_rope_layers=[1, 0]),
    "stablelm_parallel": hf.StableLmConfig(
        **GROUPED, **partial(0.25), use_parallel_residual=True, qk_layernorm=True, use_qkv_bias=True
    ),
    "starcoder2": hf.Starcoder2Config(**GROUPED, sliding_window=WINDOW),
}

MORE_FAMILIES: Mapping[str, PretrainedConfig] = {  # near relatives of those: with --long only
    "apertus": hf.ApertusConfig(**SIZES),
    "arcee": hf.ArceeConfig(**SIZES),
    "biogpt": hf.BioGptConfig(**WIDE, intermediate_size=48),
    "bitnet": hf.BitNetConfig(**GROUPED),
    "codegen": hf.CodeGenConfig(**GPT, rotary_dim=8),
    "cohere": hf.CohereConfig(**GROUPED, use_qk_norm=True, logit_scale=0.5),
    "cwm": hf.CwmConfig(**{**SIZES, "bos_token_id": 1}, **WINDOWED, rope_parameters={**LLAMA3_ROPE, "rope_theta": 1e4}),
    "ernie4_5": hf.Ernie4_5Config(**SIZES, use_bias=True),
    "exaone4": hf.Exaone4Config(**SIZES, **WINDOWED),
    "gemma": hf.GemmaConfig(**{**SIZES, "intermediate_size": 24}),
    "glm": hf.GlmConfig(**SIZES, **partial(0.5)),
    "gpt2_scaled_by_layer": hf.GPT2Config(**GPT, scale_attn_by_inverse_layer_idx=True),
    "gpt_bigcode": hf.GPTBigCodeConfig(**GPT),
    "gpt_neox_sequential": hf.GPTNeoXConfig(**WIDE, intermediate_size=48, use_parallel_residual=False),
    "gptj": hf.GPTJConfig(**GPT, rotary_dim=8),
    "granite_swa": hf.GraniteSWAConfig(**GROUPED, **MULTIPLIERS, **WINDOWED),
    "helium": hf.HeliumConfig(**{**GROUPED, "head_dim": 16}),
    "hunyuan": hf.HunYuanDenseV1Config(**SIZES),
    "hyperclovax": hf.HyperCLOVAXConfig(**SIZES, **MULTIPLIERS),
    "jais2": hf.Jais2Config(**SIZES),
    "ministral3": hf.Ministral3Config(**SIZES),
    "modernbert_decoder": hf.ModernBertDecoderConfig(
        **{**WIDE, **BERT_TOKENS}, intermediate_size=48, local_attention=8
    ),
    "nanochat": hf.NanoChatConfig(**SIZES),
    "nemotron": hf.NemotronConfig(**SIZES, **partial(0.5)),
    "olmo": hf.OlmoConfig(**GROUPED, clip_qkv=2.0),
    "olmo3": hf.Olmo3Config(**GROUPED, **WINDOWED),
    "opt": hf.OPTConfig(**WIDE, ffn_dim=48, word_embed_proj_dim=32),
    "persimmon": hf.PersimmonConfig(**WIDE, intermediate_size=48, **partial(0.5)),
    "phi": hf.PhiConfig(**WIDE, intermediate_size=48, **partial(0.5)),
    "seed_oss": hf.SeedOssConfig(**SIZES),
    "stablelm": hf.StableLmConfig(**GROUPED, **partial(0.25)),
    "vaultgemma": hf.VaultGemmaConfig(**GEMMA, attn_logit_softcapping=3.0, final_logit_softcapping=4.0),
}

OWN_ATTENTION = "computes attention by itself"
REFUSED: Mapping[str, tuple[PretrainedConfig, str]] = {  # and what the refusal says
    "bloom": (hf.BloomConfig(vocab_size=VOCAB_SIZE, hidden_size=64, n_layer=2, n_head=4), OWN_ATTENTION),
    "falcon": (hf.FalconConfig(**WIDE), OWN_ATTENTION),
    "lfm2": (hf.Lfm2Config(**GROUPED, layer_types=["conv", "full_attention"]), "has layers of type conv"),
    "llama4": (hf.Llama4TextConfig(num_hidden_layers=4, num_local_experts=1), "has layers of type chunked_attention"),
    "mamba": (hf.MambaConfig(num_hidden_layers=2), "has layers of type linear_attention"),
    "minicpm3": (
        hf.MiniCPM3Config(**WIDE, intermediate_size=48, kv_lora_rank=16, q_lora_rank=16),
        "has keys and values of different sizes",
    ),
    "mixtral": (hf.MixtralConfig(**SIZES, num_local_experts=4), "is a mixture of experts"),
    "mpt": (hf.MptConfig(d_model=64, n_layers=2, n_heads=4), OWN_ATTENTION),
    "t5": (hf.T5Config(), "describes an encoder with a decoder"),
}

MORE_REFUSED: Mapping[str, tuple[PretrainedConfig, str]] = {  # with --long only
    "diffllama": (hf.DiffLlamaConfig(**GROUPED), "calls attention 4 times in 2 layers"),
    "gpt_neo": (
        hf.GPTNeoConfig(hidden_size=64, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]),
        OWN_ATTENTION,
    ),
    "gpt_neox_japanese": (hf.GPTNeoXJapaneseConfig(**WIDE), OWN_ATTENTION),
    "gpt_oss": (hf.GptOssConfig(**SIZES, **WINDOWED, num_local_experts=4), "is a mixture of experts"),
    "hrm_text": (hf.HrmTextConfig(**SIZES), "calls attention 16 times in 2 layers"),
    "rwkv": (hf.RwkvConfig(hidden_size=32, num_hidden_layers=2), OWN_ATTENTION),
    "xglm": (
        hf.XGLMConfig(vocab_size=VOCAB_SIZE, d_model=64, ffn_dim=48, num_layers=2, attention_heads=4),
        OWN_ATTENTION,
    ),
}
