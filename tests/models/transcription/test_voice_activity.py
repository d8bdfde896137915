"""Where somebody speaks, and how a long recording is cut: no word twice, none lost, little in memory."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.transcription.voice_activity import (
    BLOCK_S,
    MARGIN_S,
    REST_S,
    SAMPLE_RATE,
    WINDOW_S,
    Span,
    Window,
    blocks,
    packed,
    rest,
    spoken,
)
from tests.models.hearing import noise

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
    """What the network would say: runs of one number, cut where they are too long for a window."""
    edges = [0, *(np.flatnonzero(np.diff(samples)) + 1), len(samples)]
    runs = [(a, b) for a, b in pairwise(edges) if b > a and samples[a]]
    step = int(WINDOW_S * RATE)
    return [Span(at / RATE, min(at + step, b) / RATE) for a, b in runs for at in range(a, b, step)]


GAPS = st.lists(st.tuples(st.floats(0.1, 200), st.floats(0.1, 70)), max_size=12)


@settings(max_examples=150, deadline=None)
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


@pytest.mark.parametrize("duration_s", [0.01, BLOCK_S - 0.01, BLOCK_S, BLOCK_S + 0.01])
def test_silence_is_looked_at_to_its_end(duration_s: float) -> None:
    parts = list(blocks(reader(recording([], duration_s)), duration_s, find=found))
    assert [part.windows for part in parts] == [()] * len(parts)
    assert parts[-1].done_s == duration_s
    assert len(parts) == 1 + (duration_s > BLOCK_S)


@pytest.mark.parametrize(("end", "is_left"), [(-0.01, False), (0.0, False), (0.01, True)])
def test_speech_near_the_end_of_a_block_is_left_for_the_next(end: float, is_left: bool) -> None:
    duration_s, end_s = 2 * BLOCK_S, BLOCK_S - MARGIN_S + end
    first, *_ = blocks(reader(recording([(end_s - 5, end_s)], duration_s)), duration_s, find=found)
    assert bool(first.windows) is not is_left
    assert first.done_s == (pytest.approx(end_s - 5) if is_left else BLOCK_S - MARGIN_S)


def test_passages_share_windows_up_to_thirty_seconds() -> None:
    spans = [Span(0, 5), Span(20, 30), Span(30, 31), Span(59.9, 60), Span(60, 61.01)]
    assert [(window.start, window.end, len(window.spoken)) for window in packed(spans)] == [
        (0, 30, 2),
        (30, 60, 2),
        (60, 61.01, 1),
    ]


@pytest.mark.parametrize(("speech_s", "is_left"), [(REST_S - 0.01, False), (REST_S, True), (REST_S + 0.01, True)])
def test_speech_without_words_is_what_is_left(speech_s: float, is_left: bool) -> None:
    window = Window(10, 30, (Span(10, 14), Span(20, 21), Span(30 - speech_s + 1, 30)))
    assert rest(window, 14.0) == (Window(20, 30, window.spoken[1:]) if is_left else None)
    assert rest(window, 12.0) == Window(12, 30, (Span(12, 14), *window.spoken[1:]))
    assert rest(window, 30.0) is None


def test_strewn_speech_makes_few_windows() -> None:
    spans = [Span(at, at + 0.3) for at in range(0, 3600, 4)]
    assert len(packed(spans)) <= 2 * 3600 / WINDOW_S


@pytest.mark.parametrize("kind", ["silence", "noise", "hum", "beeps", "clicks"])
def test_what_is_no_voice_is_none(kind: str) -> None:
    assert spoken(noise(kind, SAMPLE_RATE)) == []
