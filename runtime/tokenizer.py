"""Text to tokens and back, and the one place where special tokens are added.

A bundle's tokenizer.json and chat template flow in. A raw prompt gets the tokenizer's own specials; a chat is
rendered by the template, which writes its specials itself, so none are added again (no double BOS).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NoReturn, Protocol

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from .detokenize import StreamWriter
from .errors import BundleError, RequestError
from .sampling_params import SamplingParams

__all__ = ["BundleTokenizer", "Message", "TextFiles"]

Message = Mapping[str, str]
"""One turn of a chat: "role" and "content"."""


class TextFiles(Protocol):
    """Whoever holds a model's text files: a bundle, or a checkpoint that is to become one."""

    def read_text(self, name: str) -> str | None:
        """A text file, None where there is none of that name."""

    def generation_config(self) -> Mapping[str, object]:
        """Special ids of the model, where known."""


class BundleTokenizer:
    """See runtime/generate.py: `TextCodec`, and chats."""

    def __init__(self, bundle: TextFiles) -> None:
        text = bundle.read_text("tokenizer.json")
        if text is None:
            raise BundleError("no tokenizer.json", needed="the model's tokenizer", do="build the bundle again")
        self._tokenizer = Tokenizer.from_str(text)
        self._template = bundle.read_text("chat_template.jinja")
        self._special_tokens = self._named_tokens(bundle.generation_config())

    @property
    def has_chat_template(self) -> bool:
        """Whether `encode_chat` can be used."""
        return self._template is not None

    def encode(self, text: str) -> list[int]:
        """Ids of a raw prompt, with the specials that the tokenizer itself adds."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=True).ids
        return ids

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a chat, ready for the assistant's turn. Raises: RequestError when the template refuses it."""
        ids: list[int] = self._tokenizer.encode(self.render_chat(messages), add_special_tokens=False).ids
        return ids

    def render_chat(self, messages: Sequence[Message]) -> str:
        """The chat as text, as the model's own template writes it. Raises: RequestError."""
        if self._template is None:
            raise RequestError(
                "the model has no chat template", needed="one, to render a chat", do="send a plain prompt instead"
            )
        try:
            template = _environment().from_string(self._template)
            return template.render(messages=messages, add_generation_prompt=True, **self._special_tokens)
        except TemplateError as error:
            raise RequestError(
                f"the chat template refuses these messages ({error})",
                needed="roles and an order that the model knows",
                do="check roles: usually system, then user and assistant in turn",
            ) from error

    def decode(self, ids: list[int]) -> str:
        """The text of `ids` without special tokens."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def writer(self, params: SamplingParams) -> StreamWriter:
        """A fresh writer for one request."""
        return StreamWriter(self, params.stop)

    def _named_tokens(self, ids: Mapping[str, object]) -> dict[str, str]:
        """bos_token, eos_token, pad_token as text: templates print them."""
        named = {}
        for key, value in ids.items():
            token_id = value[0] if isinstance(value, list) else value
            token = self._tokenizer.id_to_token(token_id) if isinstance(token_id, int) else None
            if token is not None:
                named[key.removesuffix("_id")] = token
        return named


def _environment() -> ImmutableSandboxedEnvironment:
    """Templates come from checkpoints: they may format text and do nothing else."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
