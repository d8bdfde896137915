"""The watermark is found where it was put, after lossy codecs too, and nowhere else."""

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.machinery import PathFinder
from multiprocessing import get_context

import numpy as np
import pytest
import soxr

from audio.encoding import encoded
from audio.provenance import Provenance
from audio.watermark import MIN_S, THRESHOLD, Watermark
from contract.catalog import AudioFormat
from models.espeak.library import SAMPLE_RATE, Manner, speak
from tests.audio.test_encoding import decoded

RATE = 24_000


@cache
def _spoken(name: str) -> np.ndarray:
    """The first sound of a process, always the same: espeak's noise is another at each call, and may look marked."""
    text = "Good morning. The boats are out, and the gulls are louder than the sea."
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        return fresh.submit(speak, text, Manner(name)).result()


def voice(seconds: float, name: str = "en-us", rate: int = RATE) -> np.ndarray:
    """Speech that nobody has marked. The networks know speech: hums and chords they judge at random."""
    return soxr.resample(_spoken(name), SAMPLE_RATE, rate)[: round(seconds * rate)]


@pytest.fixture(scope="module")
def watermark() -> Watermark:
    return Watermark()


def test_the_mark_is_found_where_it_was_put(watermark: Watermark) -> None:
    for name in ("en-us", "de+f2"):
        for rate in (8_000, 22_050, 24_000, 44_100):
            clean = voice(3, name, rate)
            marked = watermark.embed(clean, rate)
            assert (marked.shape, marked.dtype) == (clean.shape, np.float32)
            assert watermark.detect(marked, rate) > 0.95, (name, rate)
            assert watermark.detect(clean, rate) < 0.2, (name, rate)


@pytest.mark.parametrize("format", ["mp3", "opus", "aac"])
def test_the_mark_survives_codecs(watermark: Watermark, format: AudioFormat) -> None:
    clean = voice(4)
    marks = Provenance("test", 0)
    back = decoded(encoded(watermark.embed(clean, RATE), format, RATE, marks), RATE)
    assert watermark.detect(back, RATE) > 0.8
    assert watermark.detect(decoded(encoded(clean, format, RATE, marks), RATE), RATE) < 0.2


def test_the_mark_survives_another_rate_and_a_cut(watermark: Watermark) -> None:
    marked = watermark.embed(voice(4, rate=44_100), 44_100)
    as_heard = soxr.resample(marked, 44_100, 16_000)
    assert watermark.detect(as_heard, 16_000) > 0.95
    assert watermark.detect(as_heard[20_000:36_000], 16_000) > 0.8


def test_parts_that_are_marked_alone_are_marked_together_and_join_without_a_click(watermark: Watermark) -> None:
    clean = voice(4)
    parts = [watermark.embed(clean[at : at + RATE], RATE) for at in range(0, len(clean), RATE)]
    joined = np.concatenate(parts)
    assert watermark.detect(joined, RATE) > 0.95
    for at in range(RATE, len(clean), RATE):
        np.testing.assert_array_equal(joined[[at - 1, at]], clean[[at - 1, at]])


def test_the_shortest_clip_carries_it(watermark: Watermark) -> None:
    clean = voice(4)
    for at in (RATE // 4, RATE, 2 * RATE):
        clip = clean[at : at + int(MIN_S * RATE)]
        assert watermark.detect(watermark.embed(clip, RATE), RATE) > THRESHOLD
        assert watermark.detect(clip, RATE) < THRESHOLD


def test_sound_of_any_length_keeps_its_length(watermark: Watermark) -> None:
    for rate in (8_000, 32_000, 44_100):
        for length in (0, 1, 2, 100, 319, 320, 321, 2_047, 2_048, 2_049):
            samples = voice(1, rate=rate)[:length]
            marked = watermark.embed(samples, rate)
            assert marked.shape == (length,)
            assert np.isfinite(marked).all()
            assert 0 <= watermark.detect(marked, rate) <= 1


def test_silence_stays_silent_and_has_no_mark(watermark: Watermark) -> None:
    silence = np.zeros(RATE, np.float32)
    np.testing.assert_array_equal(watermark.embed(silence, RATE), silence)
    assert watermark.detect(silence, RATE) == 0


def test_what_is_above_2_khz_stays_as_it_was(watermark: Watermark) -> None:
    clean = voice(3)
    spectrum = np.abs(np.fft.rfft(watermark.embed(clean, RATE) - clean))
    at_2_200_hz = round(2_200 * len(spectrum) / (RATE / 2))
    assert np.square(spectrum[at_2_200_hz:]).sum() < 1e-3 * np.square(spectrum).sum()


def test_without_its_package_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing(PathFinder):
        @classmethod
        def find_spec(cls, name, path=None, target=None):
            return None if name == "perth" else PathFinder.find_spec(name, path, target)

    monkeypatch.delitem(sys.modules, "perth", raising=False)
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if finder is not PathFinder] + [Missing])
    with pytest.raises(RuntimeError, match="resemble-perth is not installed"):
        Watermark()
