"""Answers of providers: what becomes of honest ones, and of any other."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.provider import ProviderError
from models.transcription.answers import LONGEST_S, PAUSE_S, read

SECONDS = 10.0


def said(text: str, *words: tuple[str, float, float], seconds: float = SECONDS) -> list[tuple[str, float, float]]:
    answer = {"text": text, "words": [{"word": word, "start": start, "end": end} for word, start, end in words]}
    return [(s.text, s.start, s.end) for s in read(json.dumps(answer).encode(), seconds, "words").segments]


@pytest.mark.parametrize(
    ("start", "end", "times"),
    [
        ("-1", "2", (0.0, 2.0)),
        ("1", "99", (1.0, SECONDS)),
        ("99", "100", (SECONDS, SECONDS)),
        ("3", "2", (3.0, 3.0)),
        ("NaN", "2", (0.0, 2.0)),
        ("1", "NaN", (1.0, 1.0)),
        ("-Infinity", "Infinity", (0.0, SECONDS)),
        ("1e999", "-1e999", (SECONDS, SECONDS)),
        ("1" + "0" * 400, "1", (SECONDS, SECONDS)),
        ("null", "null", (0.0, 0.0)),
        ('"1"', "true", (0.0, 0.0)),
    ],
)
def test_times_that_cannot_be_are_kept_within_the_recording(start: str, end: str, times: tuple[float, float]) -> None:
    body = f'{{"text": "a", "segments": [{{"text": "a", "start": {start}, "end": {end}}}]}}'
    (segment,) = read(body.encode(), SECONDS).segments
    assert (segment.start, segment.end) == times


def test_no_segment_begins_before_the_one_that_it_follows() -> None:
    pieces = [{"text": "b", "start": 5, "end": 6}, {"text": "a", "start": 1, "end": 2}]
    found = read(json.dumps({"text": "b a", "segments": pieces}).encode(), SECONDS).segments
    assert [(s.text, s.start, s.end) for s in found] == [("b", 5.0, 6.0), ("a", 5.0, 5.0)]


@pytest.mark.parametrize("text", ["", " \n"])
def test_nothing_said_is_no_segment(text: str) -> None:
    assert read(json.dumps({"text": text, "segments": None}).encode(), SECONDS).segments == ()
    assert read(json.dumps({"text": text}).encode(), SECONDS, "words").segments == ()


def test_words_without_times_are_not_invented() -> None:
    with pytest.raises(ProviderError):
        read(json.dumps({"text": "a b", "segments": [{"text": "a b"}]}).encode(), SECONDS, "words")


@pytest.mark.parametrize(("language", "given_as"), [("de", "de"), ("german", None), ("xx", None), (7, None)])
def test_a_language_counts_where_it_is_one_of_ours(language: Any, given_as: str | None) -> None:
    assert read(json.dumps({"text": "a", "language": language}).encode(), SECONDS).language == given_as


@pytest.mark.parametrize(("extra", "segments"), [(-0.01, 1), (0.0, 1), (0.01, 2)])
def test_a_pause_ends_a_segment(extra: float, segments: int) -> None:
    assert len(said("a b", ("a", 0, 1), ("b", 1 + PAUSE_S + extra, 4))) == segments


@pytest.mark.parametrize(("extra", "segments"), [(-0.01, 1), (0.0, 1), (0.01, 2)])
def test_a_segment_has_a_longest_length(extra: float, segments: int) -> None:
    end = LONGEST_S + extra
    assert len(said("a b", ("a", 0, 15), ("b", 15, end), seconds=2 * LONGEST_S)) == segments


def test_segments_of_words_have_the_text_with_all_its_marks() -> None:
    words = [("Ja", 0.0, 0.2), ("sagte", 0.2, 0.4), ("er", 0.4, 0.5), ("Gut", 0.6, 0.8)]
    assert said("»Ja!«, sagte er. Gut", *words) == [("»Ja!«, sagte er.", 0.0, 0.5), ("Gut", 0.6, 0.8)]


def test_a_language_without_spaces_gets_none() -> None:
    assert said("你好。再见", ("你", 0, 1), ("好", 1, 2), ("再", 2, 3), ("见", 3, 4)) == [
        ("你好。", 0, 2),
        ("再见", 2, 4),
    ]


def test_words_that_are_not_in_the_text_stand_for_themselves() -> None:
    assert said("Three.", ("One.", 0, 1), ("Two", 1, 2)) == [("One.", 0, 1), ("Two", 1, 2)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
NUMBERS = st.floats() | st.integers() | st.none()
PIECES = st.lists(
    st.fixed_dictionaries({"text": st.text("ab .!", max_size=5), "start": NUMBERS, "end": NUMBERS}) | JSON, max_size=6
)


@given(
    st.fixed_dictionaries({"text": st.text("ab .!", max_size=20) | JSON, "segments": PIECES | JSON, "language": JSON}),
    st.booleans(),
)
def test_whatever_is_answered_is_in_order_and_within_the_recording(answer: Any, words: bool) -> None:
    try:
        found = read(json.dumps(answer).encode(), SECONDS, "segments" if words else None)
    except ProviderError:
        return
    for segment in found.segments:
        assert 0 <= segment.start <= segment.end <= SECONDS
        assert segment.text == segment.text.strip()
        assert all(segment.start <= word.start <= word.end <= segment.end for word in segment.words)
    assert all(before.start <= after.start for before, after in pairwise(found.segments))


@given(st.binary(max_size=64))
def test_any_bytes_are_an_answer_or_none(body: bytes) -> None:
    with suppress(ProviderError):
        read(body, SECONDS)
