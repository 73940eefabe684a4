"""The text side of a bundle: specials are added once, templates are rendered safely, and refusals say why."""

import pytest
from tiny_bundles import tiny_bundle

from paceline.runtime.bundle import open_bundle
from paceline.runtime.errors import RequestError
from paceline.runtime.sampling_params import SamplingParams
from paceline.runtime.tokenizer import BundleTokenizer

USER = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> BundleTokenizer:
    return BundleTokenizer(open_bundle(tiny_bundle(tmp_path_factory.mktemp("tiny"))))


def with_template(tokenizer: BundleTokenizer, template: str | None) -> BundleTokenizer:
    changed = object.__new__(BundleTokenizer)
    changed.__dict__.update(vars(tokenizer), _template=template)
    return changed


def test_a_chat_is_rendered_by_the_model_s_template(tokenizer: BundleTokenizer) -> None:
    assert tokenizer.has_chat_template
    assert tokenizer.render_chat(USER) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_specials_of_a_chat_are_single_tokens_and_come_once(tokenizer: BundleTokenizer) -> None:
    """The old bug of many servers: the template writes the first special and the tokenizer adds it again."""
    ids = tokenizer.encode_chat(USER)
    assert ids.count(1) == 2  # <|im_start|> of the user and of the assistant
    assert ids.count(2) == 1
    assert tokenizer.decode(ids) == "user\nhi\nassistant\n"


def test_raw_text_comes_back(tokenizer: BundleTokenizer) -> None:
    for text in ("Hello world", "Grüße 한국어 👍🏽", "  spaces  "):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_templates_see_special_tokens_and_python_stays_out_of_reach(tokenizer: BundleTokenizer) -> None:
    assert with_template(tokenizer, "{{ eos_token }}").render_chat(USER) == "<|im_end|>"
    for evil in ("{{ ''.__class__.__mro__ }}{{ x.y.z }}", "{{ messages.append(1) }}", "{% for x in %}"):
        with pytest.raises(RequestError, match="refuses"):
            with_template(tokenizer, evil).render_chat(USER)


def test_a_template_that_refuses_is_quoted(tokenizer: BundleTokenizer) -> None:
    with pytest.raises(RequestError, match="roles must alternate"):
        with_template(tokenizer, "{{ raise_exception('roles must alternate') }}").render_chat(USER)
    with pytest.raises(RequestError, match="no chat template"):
        with_template(tokenizer, None).render_chat(USER)


def test_a_writer_knows_the_stop_strings(tokenizer: BundleTokenizer) -> None:
    writer = tokenizer.writer(SamplingParams(stop=("b",)))
    assert [writer.push(token_id) for token_id in tokenizer.encode("abc")] == ["a", "", ""]
    assert writer.stopped
