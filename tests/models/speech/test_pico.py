"""Pico: what it says, and what a stranger's text can do to it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contract.speech.engine import SpeechJob
from models import pico
from models.speech.expressive import styled
from models.speech.kokoro import pico_synthesizer
from tests.models import hearing

SENTENCE = "Der Zug nach Hamburg fährt heute von Gleis neun ab, und niemand weiß, wohin er fährt."

NASTY = [
    "", " ", "\0", "a\0b", "\x1b\x01P", "\u0301\u0301", "\ud800", "\u202eabc\u202c", "[[h@'loU]]", "&lt;p&gt;&#60;&#0;",
    "{\\x}", "😀👨‍👩‍👧🇩🇪", "天" * 200, "مرحبا" * 40, "﷽" * 10, "\ue000\uffff\U0010ffff", "\n" * 200, "a" * 200,
    "ä" * 200, "ẞß" * 100, "9" * 200, "½" * 200, "!" * 200, "!?" * 100, "-" * 200, "http://" * 28, "%$" * 100,
    "1." * 100,
]  # fmt: skip


def said(text: str, rate: float = 1.0, higher: float = 1.0, language: str = "de") -> np.ndarray:
    return pico.speak(text, language, rate, higher)


def pitch_hz(sound: np.ndarray) -> float:
    return hearing.pitch_of(sound, pico.SAMPLE_RATE).f0_hz


# --- what is heard ---


@pytest.mark.parametrize("language", pico.VOICES)
def test_a_sentence_is_as_long_and_as_loud_as_speech_is(language: str) -> None:
    sound = said("Maria canta una nota.", language=language)
    assert (sound.dtype, sound.ndim) == (np.float32, 1)
    assert 0.8 < len(sound) / pico.SAMPLE_RATE < 4
    assert 0.05 < sound[np.abs(sound) > 0.003].std() < 0.2
    assert np.abs(sound).max() < 0.9


@pytest.mark.parametrize(("higher", "times"), [(0.75, 0.75), (1.5, 1.5), (0.1, 0.5), (9, 2)])
def test_pitch(higher: float, times: float) -> None:
    assert pitch_hz(said(SENTENCE, higher=higher)) == pytest.approx(times * pitch_hz(said(SENTENCE)), rel=0.05)


def test_speed() -> None:
    lengths = [len(said(SENTENCE, rate)) for rate in (0.5, 1, 2)]
    assert lengths[0] == pytest.approx(2 * lengths[1], rel=0.15)
    assert lengths[2] == pytest.approx(lengths[1] / 2, rel=0.3)


def test_styles_and_speed_of_a_job_are_heard() -> None:
    def spoken(style: str = "", speed: float = 1.0) -> np.ndarray:
        (sound,) = pico_synthesizer(SpeechJob(SENTENCE, "de", speed=speed)).speak(SENTENCE, styled(style))
        return np.asarray(sound())

    usual = spoken()
    assert len(spoken(speed=1.5)) < 0.8 * len(usual)
    assert pitch_hz(spoken("a deep voice")) < 0.95 * pitch_hz(usual)
    assert spoken("whisper").std() < 0.7 * usual.std()


# --- any text ---


@pytest.mark.parametrize("text", NASTY, ids=lambda text: ascii(text[:12]))
def test_any_text_is_spoken_or_skipped(text: str) -> None:
    for language in ("de", "fr"):
        assert np.isfinite(said(text, language=language)).all()


@settings(max_examples=50, deadline=None)
@given(
    text=st.text(max_size=60) | st.text(st.characters(max_codepoint=0x250), max_size=200),
    language=st.sampled_from(sorted(pico.VOICES)),
)
@example(text="½" * 100, language="de")
def test_any_text_in_any_language(text: str, language: str) -> None:
    assert len(said(text, language=language)) / pico.SAMPLE_RATE < 5 + 1.1 * len(text)


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=300) | st.text("<>＜﹤a9ß½ﬁ", max_size=300))
@example(text="<genfile file='x'>＜speed level='20'＞")
def test_the_library_is_given_no_markup_and_no_long_word(text: str) -> None:
    given = pico.readable(text)
    assert not set("<>\0\x1b\n") & set(given)
    assert all(len(word) <= 25 for word in given.split(" "))
    assert given.isprintable()


def test_signs_of_print_are_read_as_those_of_a_keyboard() -> None:
    assert pico.readable("Geht’s von 9–17 Uhr…") == "Geht's von 9-17 Uhr."


def test_no_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in (
        "<genfile file='a.wav'>Hallo</genfile>",
        '＜genfile file="a.wav"＞Hallo',
        "&lt;genfile file='a.wav'&gt;",
    ):
        assert len(said(text))
    assert list(tmp_path.iterdir()) == []


def test_markup_is_data() -> None:
    sound = said("<break time='9s'/>")
    assert len(sound) / pico.SAMPLE_RATE < 6
    assert hearing.pitch_of(sound, pico.SAMPLE_RATE).voiced_windows > 80
    assert pitch_hz(said(f"<pitch level='200'>{SENTENCE}")) == pytest.approx(pitch_hz(said(SENTENCE)), rel=0.1)


def test_every_digit_of_an_endless_number_is_read() -> None:
    assert len(said("7" * 40)) > 1.8 * len(said("7" * 20)) > 20_000


# --- one library for all threads of a process ---


def test_sixteen_threads_get_what_one_gets() -> None:
    orders = [(f"{SENTENCE} " * (1 + at % 2), sorted(pico.VOICES)[at % 5]) for at in range(16)]
    alone = [said(text, language=language) for text, language in orders]
    with ThreadPoolExecutor(16) as threads:
        together = list(threads.map(lambda order: said(order[0], language=order[1]), orders))
    assert all(map(np.array_equal, together, alone))


def test_a_text_hears_nothing_of_those_before_it() -> None:
    first = said(SENTENCE)
    for text, language in (("hello " * 20, "en"), ("Ciao, bella signora.", "it"), ("x", "de")):
        said(text, language=language)
        assert np.array_equal(said(SENTENCE), first)


def test_neither_memory_nor_files_are_kept() -> None:
    def speak(times: int) -> int:
        for _ in range(times):
            said(SENTENCE)
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    before, files = speak(20), len(os.listdir("/proc/self/fd"))
    assert speak(100) - before < 4 << 20
    assert len(os.listdir("/proc/self/fd")) == files


def test_nothing_is_loaded_before_it_speaks() -> None:
    script = (
        "import configs, models.speech.kokoro, sys; configs.load('embedded'); assert 'py_nanotts' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
