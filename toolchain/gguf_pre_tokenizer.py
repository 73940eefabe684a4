"""How a GGUF file's byte-level vocabulary wants text split before merging: known by name, or refused.

The name (tokenizer.ggml.pre) and a converted tokenizer flow in; the tokenizer's pre-tokenizer is set. transformers
knows some names and treats all others as GPT-2's; a text with digits or runs of spaces then becomes other tokens than
the model was trained on, without a word. Refusing every name that transformers lacks lost to the few lines below.
"""

from tokenizers import Tokenizer, pre_tokenizers

from .errors import CheckpointError

__all__ = ["set_pre_tokenizer"]

BYTE_LEVEL = "gpt2"  # tokenizer.ggml.model of byte-level BPE; the others bring their own rule
AS_GPT2 = frozenset({"gpt-2", "jais", "mpt", "olmo", "phi-2"})
DIGITS_ALONE = frozenset({"codeshell", "command-r", "exaone", "refact", "smollm", "starcoder"})


def set_pre_tokenizer(tokenizer: Tokenizer, model: str, pre: object) -> None:
    """Make `tokenizer` (mutated) split text as the vocabulary `model` with the rule named `pre` does.

    Raises: CheckpointError for a rule that is known neither to transformers nor here.
    Source: the table of pre-tokenizer types in llama.cpp's src/llama-vocab.cpp.
    """
    if model != BYTE_LEVEL or not isinstance(tokenizer.pre_tokenizer, pre_tokenizers.ByteLevel) or pre in AS_GPT2:
        return  # not byte-level, or transformers knew the name and set its rule, or GPT-2's rule is right
    if pre not in DIGITS_ALONE:
        raise CheckpointError(
            f"GGUF tokenizer.ggml.pre = {pre!r}",
            needed="a known way of splitting text: another one gives tokens that the model was not trained on",
            do="give the original Hugging Face folder",
        )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
