"""`paceline run`: prompts in, completions out, all in flight together."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ...plugins.errors import PacelineError
from ...runtime.bundle_files import DigestCheck
from ...runtime.completion import Completion
from ...runtime.errors import RequestError
from ...runtime.opening import MemoryCheck, Settings
from ...runtime.request import DraftMethod
from ...runtime.sampling_params import SamplingParams
from ..extras import require_extra
from ..recipe_parts import bytes_from_text
from .console import print_json, print_line

__all__ = ["run"]


def run(
    bundle: Annotated[Path, typer.Argument(help="Bundle folder.")],
    prompt: Annotated[list[str] | None, typer.Option("--prompt", "-p", help="A prompt; repeat for more.")] = None,
    prompts: Annotated[Path | None, typer.Option(help="File with one prompt a line; - for standard input.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Take prompts as they are, without the chat template.")] = False,
    max_tokens: Annotated[int, typer.Option(help="Most tokens to write, for each prompt.")] = 128,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="0 is off.")] = 0,
    top_p: Annotated[float, typer.Option(help="1 is off.")] = 1.0,
    min_p: Annotated[float, typer.Option(help="0 is off.")] = 0.0,
    repetition_penalty: Annotated[float, typer.Option(help="1 is off.")] = 1.0,
    presence_penalty: Annotated[float, typer.Option(help="0 is off.")] = 0.0,
    frequency_penalty: Annotated[float, typer.Option(help="0 is off.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same tokens.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Text that ends an answer; repeat for more.")] = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on after the model's end token.")] = False,
    logprobs: Annotated[int | None, typer.Option(help="Log-probabilities of the N best tokens.")] = None,
    speculation: Annotated[DraftMethod | None, typer.Option(help="Default: the bundle's own.")] = None,
    num_draft_tokens: Annotated[int | None, typer.Option(help="Draft tokens per request and step.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="Most requests in one step.")] = None,
    threads: Annotated[int | None, typer.Option(help="Default: all usable cores.")] = None,
    kv_cache_memory: Annotated[
        str | None, typer.Option(help="Pages of target and draft together, like 256MiB. Default: the bundle's own.")
    ] = None,
    digests: Annotated[
        DigestCheck, typer.Option(help="What is hashed: all, what is served, nothing again.")
    ] = DigestCheck.FULL,
    memory_check: Annotated[
        MemoryCheck, typer.Option(help="off: open it even if there is less memory than it needs.")
    ] = MemoryCheck.REFUSE,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Answer prompts with the bundle's target, drafted ahead; the tokens are those of the target alone."""
    texts = _texts(prompt or [], prompts)
    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        seed=seed,
        stop=tuple(stop or ()),
        ignore_eos=ignore_eos,
        logprobs=logprobs,
    )
    settings = Settings(
        drafting=speculation,
        num_draft_tokens=num_draft_tokens,
        max_num_seqs=max_num_seqs,
        threads=threads,
        kv_cache_bytes=None if kv_cache_memory is None else _bytes(kv_cache_memory),
        digests=digests,
        memory=memory_check,
    )
    _print(texts, _answer(bundle, settings, texts, params, raw), as_json)


def _answer(bundle: Path, settings: Settings, texts: list[str], params: SamplingParams, raw: bool) -> list[Completion]:
    require_extra("cpu", "running cpu engines")
    from ...runtime.open import open_runtime  # onnxruntime loads here, not with the command line

    opened = open_runtime(bundle, settings)
    with opened.runtime as runtime:
        chats = opened.tokenizer.has_chat_template and not raw
        ids = [
            opened.tokenizer.encode_chat([{"role": "user", "content": text}])
            if chats
            else opened.tokenizer.encode(text)
            for text in texts
        ]
        return runtime.generate(ids, params, opened.defaults)


def _print(texts: list[str], completions: list[Completion], as_json: bool) -> None:
    if as_json:
        print_json({"requests": [_as_dict(text, one) for text, one in zip(texts, completions, strict=True)]})
        return
    for text, one in zip(texts, completions, strict=True):
        print_line(one.text if len(texts) == 1 else f"> {text}\n{one.text}\n")


def _bytes(size: str) -> int:
    try:
        return bytes_from_text(size)
    except ValueError as error:
        raise PacelineError(
            f"--kv-cache-memory {size}", needed=f"a size ({error})", do="correct --kv-cache-memory"
        ) from None


def _texts(given: list[str], file: Path | None) -> list[str]:
    texts = list(given)
    if file is not None:
        texts += [line for line in _read(file).splitlines() if line.strip()]
    if not texts:
        raise RequestError("no prompt", needed="at least one", do="add -p TEXT or --prompts FILE")
    if not all(text.strip() for text in texts):
        raise RequestError("an empty prompt", needed="some text", do="write something after -p")
    return texts


def _read(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            f"{file} cannot be read ({error})", needed="a UTF-8 text file", do="check the path"
        ) from None


def _as_dict(text: str, completion: Completion) -> dict[str, object]:
    """One request as it is printed; times in seconds since it was handed in."""
    result: dict[str, object] = {
        "prompt": text,
        "text": completion.text,
        "token_ids": list(completion.token_ids),
        "finish_reason": str(completion.finish_reason),
        "usage": {"prompt_tokens": len(completion.prompt_ids), "completion_tokens": len(completion.token_ids)},
        "emitted_s": [round(moment, 6) for moment in completion.emitted_s],
    }
    if any(token.logprobs for token in completion.tokens):
        result["logprobs"] = [
            {"token_id": token.token_id, "logprob": token.logprobs.chosen, "top": list(token.logprobs.top)}
            for token in completion.tokens
            if token.logprobs is not None
        ]
    return result
