"""Words become passages of a sentence or so, words where nobody spoke do not, and answers of providers are read."""

import json
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contract.transcription.engine import Segment, TimedWord
from models.provider import ProviderError
from models.transcription.answers import LONGEST_S, read
from models.transcription.answers import PAUSE_S as SILENCE_S
from models.transcription.voice_activity import (
    BLOCK_S,
    MARGIN_S,
    REST_S,
    SAMPLE_RATE,
    THRESHOLDS,
    WINDOW_S,
    Span,
    Window,
    blocks,
    packed,
    rest,
    spoken,
)
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
from tests.models.hearing import NO_VOICES, noise


def words(text: str, each_s: float = 0.5) -> list[TimedWord]:
    return [TimedWord(f" {word}", at * each_s, (at + 1) * each_s) for at, word in enumerate(text.split())]


def texts(given: list[TimedWord]) -> list[str]:
    return ["".join(word.text for word in passage).strip() for passage in sentences(given)]


PASSAGES: dict[str, list[str]] = {
    "": [],
    "One. Two three? Four!": ["One.", "Two three?", "Four!"],
    'He said: "Go." Then left': ['He said: "Go."', "Then left"],
    "你好。 再见": ["你好。", "再见"],
    "नमस्ते। फिर": ["नमस्ते।", "फिर"],
    "It is 3.5 today": ["It is 3.5 today"],
}


def test_a_sentence_is_a_passage() -> None:
    assert {text: texts(words(text)) for text in PASSAGES} == PASSAGES


def test_a_pause_ends_a_passage_and_a_long_one_ends_at_a_comma_or_at_last_anywhere() -> None:
    for pause_s, count in ((PAUSE_S - 0.01, 1), (PAUSE_S, 1), (PAUSE_S + 0.01, 2)):
        assert len(texts([TimedWord("one", 0, 1), TimedWord(" two", 1 + pause_s, 2 + pause_s)])) == count
    assert texts(words(f"{'a ' * 23}b, c, d, e"))[0].endswith("c,")
    lengths = [passage[-1].end - passage[0].start for passage in sentences(words("word " * 200))]
    assert max(lengths) == 1.5 * LONG_S + 0.5


def test_words_where_nobody_speaks_are_left_out_and_no_other_is_lost() -> None:
    for start, counts in ((2 + TOLERANCE_S - 0.01, True), (2 + TOLERANCE_S + 0.01, False), (1.5, True), (5, False)):
        assert is_heard([TimedWord("you", start, start + 0.2)], [Span(1, 2), Span(9, 10)]) is counts, start
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


SECONDS = 10.0


def said(text: str, *words: tuple[str, float, float], seconds: float = SECONDS) -> list[tuple[str, float, float]]:
    answer = {"text": text, "words": [{"word": word, "start": start, "end": end} for word, start, end in words]}
    return [(s.text, s.start, s.end) for s in read(json.dumps(answer).encode(), seconds, "words").segments]


TIMES = {
    ("-1", "2"): (0.0, 2.0),
    ("1", "99"): (1.0, SECONDS),
    ("99", "100"): (SECONDS, SECONDS),
    ("3", "2"): (3.0, 3.0),
    ("NaN", "2"): (0.0, 2.0),
    ("1", "NaN"): (1.0, 1.0),
    ("-Infinity", "Infinity"): (0.0, SECONDS),
    ("1e999", "-1e999"): (SECONDS, SECONDS),
    ("1" + "0" * 400, "1"): (SECONDS, SECONDS),
    ("null", "null"): (0.0, 0.0),
    ('"1"', "true"): (0.0, 0.0),
}


def test_times_that_cannot_be_are_kept_within_the_recording_and_in_order() -> None:
    body = '{{"text": "a", "segments": [{{"text": "a", "start": {}, "end": {}}}]}}'
    found = {times: read(body.format(*times).encode(), SECONDS).segments[0] for times in TIMES}
    assert {times: (segment.start, segment.end) for times, segment in found.items()} == TIMES
    pieces = [{"text": "b", "start": 5, "end": 6}, {"text": "a", "start": 1, "end": 2}]
    found = read(json.dumps({"text": "b a", "segments": pieces}).encode(), SECONDS).segments
    assert [(s.text, s.start, s.end) for s in found] == [("b", 5.0, 6.0), ("a", 5.0, 5.0)]


def test_nothing_said_is_no_segment_and_words_without_times_are_not_invented() -> None:
    for text in ("", " \n"):
        assert read(json.dumps({"text": text, "segments": None}).encode(), SECONDS).segments == ()
        assert read(json.dumps({"text": text}).encode(), SECONDS, "words").segments == ()
    with pytest.raises(ProviderError):
        read(json.dumps({"text": "a b", "segments": [{"text": "a b"}]}).encode(), SECONDS, "words")


def test_a_language_counts_where_it_is_one_of_ours() -> None:
    for language, given_as in (("de", "de"), ("german", None), ("xx", None), (7, None)):
        assert read(json.dumps({"text": "a", "language": language}).encode(), SECONDS).language == given_as


def test_a_pause_and_a_longest_length_end_a_segment() -> None:
    for extra, segments in ((-0.01, 1), (0.0, 1), (0.01, 2)):
        assert len(said("a b", ("a", 0, 1), ("b", 1 + SILENCE_S + extra, 4))) == segments
        assert len(said("a b", ("a", 0, 15), ("b", 15, LONGEST_S + extra), seconds=2 * LONGEST_S)) == segments


def test_segments_of_words_have_the_text_with_all_its_marks() -> None:
    words = [("Ja", 0.0, 0.2), ("sagte", 0.2, 0.4), ("er", 0.4, 0.5), ("Gut", 0.6, 0.8)]
    assert said("»Ja!«, sagte er. Gut", *words) == [("»Ja!«, sagte er.", 0.0, 0.5), ("Gut", 0.6, 0.8)]
    words = [("你", 0, 1), ("好", 1, 2), ("再", 2, 3), ("见", 3, 4)]  # a language without spaces gets none
    assert said("你好。再见", *words) == [("你好。", 0, 2), ("再见", 2, 4)]
    # Words that are not in the text stand for themselves.
    assert said("Three.", ("One.", 0, 1), ("Two", 1, 2)) == [("One.", 0, 1), ("Two", 1, 2)]
    assert said("三", *words[:2]) == [("你好", 0, 2)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
NUMBERS = st.floats() | st.integers() | st.none()
PIECES = st.lists(
    st.fixed_dictionaries({"text": st.text("ab .!", max_size=5), "start": NUMBERS, "end": NUMBERS}) | JSON, max_size=6
)


@example({"text": "", "segments": [{"text": "a", "start": 0, "end": 1}, {"text": "a", "start": 0, "end": 0}]}, True)
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


RATE = 100
"""Of the recordings here, in which a sample that is not zero is speech."""


def recording(spans: list[tuple[float, float]], duration_s: float) -> np.ndarray:
    made = np.zeros(round(duration_s * RATE), np.float32)
    for number, (start, end) in enumerate(spans, 1):
        made[round(start * RATE) : round(end * RATE)] = number
    return made


def reader(made: np.ndarray) -> Callable[[float, float], np.ndarray]:
    return lambda start, end: made[round(start * RATE) : round(end * RATE)]


def found(samples: np.ndarray) -> list[Span]:
    """Simulated output of the network: runs of one number, cut where they are too long for a window."""
    edges = [0, *(np.flatnonzero(np.diff(samples)) + 1), len(samples)]
    runs = [(a, b) for a, b in pairwise(edges) if b > a and samples[a]]
    step = int(WINDOW_S * RATE)
    return [Span(at / RATE, min(at + step, b) / RATE) for a, b in runs for at in range(a, b, step)]


GAPS = st.lists(st.tuples(st.floats(0.1, 200), st.floats(0.1, 70)), max_size=12)


@settings(max_examples=150)
@given(gaps=GAPS, rest_s=st.floats(0, 400))
@example(gaps=[(10, 5)], rest_s=290)
@example(gaps=[(BLOCK_S - 1, 5)], rest_s=0)
@example(gaps=[(0.1, 70), (0.1, 70), (0.1, 70), (0.1, 70), (0.1, 70)], rest_s=0)
def test_all_speech_is_in_one_window_and_none_in_two(gaps: list[tuple[float, float]], rest_s: float) -> None:
    spans, at = [], 0.0
    for gap, length in gaps:
        spans.append((round(at + gap, 2), round(at + gap + length, 2)))
        at = spans[-1][1]
    duration_s = round(at + rest_s, 2)
    made = recording(spans, duration_s)
    heard = np.zeros(len(made), int)
    last_done = 0.0
    for block in blocks(reader(made), duration_s, find=found):
        assert len(block.samples) <= BLOCK_S * RATE + 1
        for window in block.windows:
            assert window.end - window.start <= WINDOW_S + 0.02
            assert block.start <= window.start < window.end <= block.start + len(block.samples) / RATE + 0.01
            heard[round(window.start * RATE) : round(window.end * RATE)] += 1
        assert block.done_s >= last_done
        last_done = block.done_s
    assert last_done == duration_s
    assert heard.max(initial=0) <= 1
    assert np.all(heard[made > 0] == 1)


def test_silence_is_looked_at_to_its_end() -> None:
    for duration_s in (0.01, BLOCK_S - 0.01, BLOCK_S, BLOCK_S + 0.01):
        parts = list(blocks(reader(recording([], duration_s)), duration_s, find=found))
        assert [part.windows for part in parts] == [()] * len(parts)
        assert parts[-1].done_s == duration_s
        assert len(parts) == 1 + (duration_s > BLOCK_S)


def test_speech_near_the_end_of_a_block_is_left_for_the_next() -> None:
    for end, is_left in ((-0.01, False), (0.0, False), (0.01, True)):
        duration_s, end_s = 2 * BLOCK_S, BLOCK_S - MARGIN_S + end
        first, *_ = blocks(reader(recording([(end_s - 5, end_s)], duration_s)), duration_s, find=found)
        assert bool(first.windows) is not is_left
        assert first.done_s == (pytest.approx(end_s - 5) if is_left else BLOCK_S - MARGIN_S)


def test_passages_share_windows_up_to_thirty_seconds_and_strewn_speech_makes_few() -> None:
    spans = [Span(0, 5), Span(20, 30), Span(30, 31), Span(59.9, 60), Span(60, 61.01)]
    shared = [(window.start, window.end, len(window.spoken)) for window in packed(spans)]
    assert shared == [(0, 30, 2), (30, 60, 2), (60, 61.01, 1)]
    assert len(packed([Span(at, at + 0.3) for at in range(0, 3600, 4)])) <= 2 * 3600 / WINDOW_S


def test_speech_without_words_is_what_is_left() -> None:
    for speech_s, is_left in ((REST_S - 0.01, False), (REST_S, True), (REST_S + 0.01, True)):
        window = Window(10, 30, (Span(10, 14), Span(20, 21), Span(30 - speech_s + 1, 30)))
        assert rest(window, 14.0) == (Window(20, 30, window.spoken[1:]) if is_left else None)
        assert rest(window, 12.0) == Window(12, 30, (Span(12, 14), *window.spoken[1:]))
        assert rest(window, 30.0) is None


def test_what_is_no_voice_is_none() -> None:
    assert not {kind: spans for kind in NO_VOICES if (spans := spoken(noise(kind, SAMPLE_RATE)))}


LOWEST = THRESHOLDS[-1]


def test_a_soft_voice_is_found_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    second = np.concatenate([np.ones(31), np.zeros(31)])
    for highest, at in (
        *(([LOWEST - 0.01], []), ([LOWEST], [0]), ([LOWEST + 0.01], [0])),
        *(([0.49, 0.4], [0, 1]), ([0.5, 0.4], [0]), ([0.4, 0.51], [1])),
    ):
        chances = np.outer(highest, second).ravel()
        monkeypatch.setattr("faster_whisper.vad.get_vad_model", lambda chances=chances: lambda _: chances)
        spans = spoken(np.zeros(SAMPLE_RATE * 2 * len(highest), np.float32))
        assert [int(span.start + span.end) // 4 for span in spans] == at, highest
