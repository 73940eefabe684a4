"""Where a request ends, and what of the last step's tokens and text it keeps."""

import pytest
from toy_requests import toy_request

from paceline.runtime.chain import SampledToken
from paceline.runtime.emit import end_request, take_tokens
from paceline.runtime.request import FinishReason


class SpellingWriter:
    """Token i is the letter i; holds one letter back, and stops after 'xx'."""

    def __init__(self):
        self.text = ""
        self.held = ""

    @property
    def stopped(self):
        return self.text.endswith("xx")

    def push(self, token_id):
        out, self.held = self.held, chr(token_id)
        self.text += chr(token_id)
        return out

    def flush(self):
        out, self.held = self.held, ""
        return "" if self.stopped else out


def tokens(text):
    return [SampledToken(ord(letter)) for letter in text]


def request(**params):
    made = toy_request(2, stop_ids=frozenset({ord("$")}), **params)
    made.writer = SpellingWriter()
    return made


def taken(emission):
    return "".join(chr(token.token_id) for token in emission.tokens)


@pytest.mark.parametrize(
    ("sampled", "max_tokens", "kept", "text", "reason"),
    [
        ("abc", 9, "abc", "ab", None),
        ("ab$cd", 9, "ab$", "ab", FinishReason.STOP),
        ("abcdef", 4, "abcd", "abcd", FinishReason.LENGTH),
        ("a$", 2, "a$", "a", FinishReason.STOP),
        ("axxbc", 9, "axx", "ax", FinishReason.STOP),
        ("$", 9, "$", "", FinishReason.STOP),
    ],
)
def test_tokens_behind_a_stop_are_dropped(sampled, max_tokens, kept, text, reason):
    subject = request(max_tokens=max_tokens)
    emission = take_tokens(subject, tokens(sampled))
    assert (taken(emission), emission.text, emission.finish_reason) == (kept, text, reason)
    assert subject.output_ids == [ord(letter) for letter in kept]
    assert subject.finish_reason is reason


def test_text_held_back_comes_with_the_end():
    subject = request()
    assert take_tokens(subject, tokens("ab")).text == "a"
    assert end_request(subject, FinishReason.CANCELLED).text == "b"


def test_request_without_a_writer_has_tokens_alone():
    subject = toy_request(2, max_tokens=2)
    emission = take_tokens(subject, tokens("ab"))
    assert (emission.text, emission.finish_reason) == ("", FinishReason.LENGTH)
