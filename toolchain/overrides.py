"""Command-line options that lie over a recipe: which flag sets which key."""

import json
from collections.abc import Mapping

from .errors import RecipeError

__all__ = ["flags_from", "overrides_from"]

# flag (as typer names the parameter) -> key in the recipe
KEYS = {
    "verify": "build.verify",
    "weights": "quantization.weights",
    "kv_cache_dtype": "kv_cache.dtype",
    "kv_cache_memory": "runtime.kv_cache_memory",
    "max_batch_size": "runtime.max_num_seqs",
    "max_num_tokens": "runtime.max_num_batched_tokens",
    "max_seq_len": "runtime.max_seq_len",
    "max_draft_len": "speculation.num_speculative_tokens",
    "speculative_decoding_mode": "speculation.method",
}
SPECULATIVE_KEYS = {
    "method": "speculation.method",
    "num_speculative_tokens": "speculation.num_speculative_tokens",
    "model": "draft.checkpoint",
}


def overrides_from(flags: dict[str, object], speculative_config: str | None = None) -> dict[str, object]:
    """Overrides for `load_recipe` out of flags that were given (not None) and vLLM's `--speculative-config` JSON.

    Raises: RecipeError for a key of that JSON that is not known.
    """
    overrides = {KEYS[name]: value for name, value in flags.items() if value is not None}
    if speculative_config is not None:
        overrides |= _from_speculative_config(speculative_config)
    return overrides


def flags_from(overrides: Mapping[str, object]) -> tuple[str, ...]:
    """The flags that set these keys of a recipe, as one would type them."""
    flag_of = {key: f"--{name.replace('_', '-')}" for name, key in KEYS.items()}
    return tuple(f"{flag_of[key]} {value}" for key, value in overrides.items())


def _from_speculative_config(text: str) -> dict[str, object]:
    try:
        config = json.loads(text)
        pairs = dict(config).items()
    except (ValueError, TypeError) as error:
        raise RecipeError(
            f"--speculative-config {text!r} is no JSON object ({error})",
            needed='an object like {"method": "ngram", "num_speculative_tokens": 4}',
            do="correct the quotes",
        ) from None
    unknown = [key for key, _ in pairs if key not in SPECULATIVE_KEYS]
    if unknown:
        raise RecipeError(
            f"--speculative-config has {', '.join(unknown)}",
            needed=f"keys out of {', '.join(SPECULATIVE_KEYS)}",
            do="set the rest in the recipe",
        )
    return {SPECULATIVE_KEYS[key]: value for key, value in pairs}
