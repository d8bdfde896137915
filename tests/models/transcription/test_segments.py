"""Words become passages of a sentence or so; words where nobody spoke do not."""

from __future__ import annotations

from itertools import pairwise

import pytest

from contract.transcription.engine import Segment, TimedWord
from models.transcription.voice_activity import Span
from models.transcription.whisper import (
    LONG_S,
    PAUSE_S,
    SHORTEST_S,
    TOLERANCE_S,
    breathless,
    in_order,
    is_heard,
    sentences,
)


def words(text: str, each_s: float = 0.5) -> list[TimedWord]:
    return [TimedWord(f" {word}", at * each_s, (at + 1) * each_s) for at, word in enumerate(text.split())]


def texts(given: list[TimedWord]) -> list[str]:
    return ["".join(word.text for word in passage).strip() for passage in sentences(given)]


@pytest.mark.parametrize(
    ("text", "passages"),
    [
        ("", []),
        ("One. Two three? Four!", ["One.", "Two three?", "Four!"]),
        ('He said: "Go." Then left', ['He said: "Go."', "Then left"]),
        ("你好。 再见", ["你好。", "再见"]),
        ("नमस्ते। फिर", ["नमस्ते।", "फिर"]),
        ("It is 3.5 today", ["It is 3.5 today"]),
    ],
)
def test_a_sentence_is_a_passage(text: str, passages: list[str]) -> None:
    assert texts(words(text)) == passages


@pytest.mark.parametrize(("pause_s", "count"), [(PAUSE_S - 0.01, 1), (PAUSE_S, 1), (PAUSE_S + 0.01, 2)])
def test_a_pause_ends_a_passage(pause_s: float, count: int) -> None:
    assert len(texts([TimedWord("one", 0, 1), TimedWord(" two", 1 + pause_s, 2 + pause_s)])) == count


def test_a_long_passage_ends_at_a_comma_or_at_last_anywhere() -> None:
    assert texts(words(f"{'a ' * 23}b, c, d, e"))[0].endswith("c,")
    lengths = [passage[-1].end - passage[0].start for passage in sentences(words("word " * 200))]
    assert max(lengths) == 1.5 * LONG_S + 0.5


@pytest.mark.parametrize(
    ("start", "heard"), [(2 + TOLERANCE_S - 0.01, True), (2 + TOLERANCE_S + 0.01, False), (1.5, True), (5, False)]
)
def test_words_where_nobody_speaks_are_not_heard(start: float, heard: bool) -> None:
    assert is_heard([TimedWord("you", start, start + 0.2)], [Span(1, 2), Span(9, 10)]) is heard


def test_no_word_is_lost() -> None:
    given = words("one two. three, " * 50, 0.7)
    assert [word for passage in sentences(given) for word in passage] == given


def test_words_that_take_no_time_are_breathless() -> None:
    assert breathless([]) == 0
    assert breathless(words("one two", SHORTEST_S)) == 0
    assert breathless([*words("one two three"), TimedWord(" three", 1.5, 1.5 + SHORTEST_S - 0.01)]) == 0.25


def test_times_are_clamped_and_in_order() -> None:
    given = [Segment("a", 3.0, 2.5), Segment("b", 1.0, 29.4), Segment("c", 7.0, 31.0)]
    placed = list(in_order(given, 2.0, 5.3))
    assert [(segment.start, segment.end) for segment in placed] == [(3.0, 3.0), (3.0, 5.3), (5.3, 5.3)]
    assert all(after.start >= before.end for before, after in pairwise(placed))
