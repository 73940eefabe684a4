"""Stop strings: never sent, not even half, and the same whatever the pieces are."""

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.runtime.stop import StopScanner


def let_out(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    scanner = StopScanner(stops)
    text = "".join(scanner.push(piece) for piece in pieces)
    return text + scanner.flush(), scanner.stopped


def expected(stops: list[str], text: str) -> tuple[str, bool]:
    """Character by character: the first stop string to end wins, the longest of those that end together."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[: end - max(map(len, ending))], True
    return text, False


STOPS = st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3)


@given(STOPS, st.lists(st.text("abc\n", max_size=5), max_size=8))
@settings(max_examples=500, derandomize=True)
def test_the_outcome_does_not_depend_on_the_pieces(stops: list[str], pieces: list[str]) -> None:
    assert let_out(stops, pieces) == expected(stops, "".join(pieces))


@given(STOPS, st.lists(st.text("abc\n", max_size=5), max_size=8))
@settings(max_examples=300, derandomize=True)
def test_nothing_is_taken_back_and_no_more_is_held_than_needed(stops: list[str], pieces: list[str]) -> None:
    scanner, sent, seen = StopScanner(stops), "", ""
    for piece in pieces:
        sent += scanner.push(piece)
        seen += piece
        final, stopped = expected(stops, seen)
        assert final.startswith(sent)
        longest = max(map(len, stops), default=1)
        if not stopped:
            assert len(seen) - len(sent) < longest


def test_nothing_comes_after_a_stop() -> None:
    scanner = StopScanner(["END"])
    assert scanner.push("some EN") == "some "
    assert scanner.push("D more") == ""
    assert scanner.stopped
    assert scanner.push("text") == ""
    assert scanner.flush() == ""
