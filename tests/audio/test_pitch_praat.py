"""Pitch of speech beside Praat's, the measure of the field. Praat is told the same bounds and steps."""

from __future__ import annotations

from itertools import product

import numpy as np
import parselmouth
import pytest

from audio.pitch import HIGHEST_HZ, LOWEST_HZ, STEP_S, measure
from models.espeak import library
from models.espeak.library import SAMPLE_RATE, Manner

TEXTS = {
    "en": "The quick brown fox runs along the river, and nobody knows where it will go tomorrow morning.",
    "de": "Guten Tag, ich freue mich sehr, dass Sie heute da sind, und erzähle Ihnen gern von unserer Stadt.",
}
VARIANTS = ("m2", "m3", "m7", "f1", "f5")
SETTINGS = (0, 30, 60, 99)


def praats_quartiles_hz(samples: np.ndarray, sample_rate: int) -> tuple[float, float, float]:
    track = parselmouth.Sound(samples.astype(np.float64), sample_rate).to_pitch(STEP_S, LOWEST_HZ, HIGHEST_HZ)
    heights = track.selected_array["frequency"]
    p25, median, p75 = np.percentile(heights[heights > 0], (25, 50, 75))
    return float(p25), float(median), float(p75)


def spoken(language: str, variant: str, setting: int) -> np.ndarray:
    return library.speak(TEXTS[language], Manner(f"{language}+{variant}", pitch=setting))


@pytest.mark.parametrize(("language", "variant", "setting"), [*product(TEXTS, VARIANTS, SETTINGS)])
def test_speech_is_within_three_per_cent(language: str, variant: str, setting: int) -> None:
    sound = spoken(language, variant, setting)
    pitch = measure(sound, SAMPLE_RATE)
    p25_hz, median_hz, p75_hz = praats_quartiles_hz(sound, SAMPLE_RATE)
    assert pitch is not None
    assert pitch.f0_hz == pytest.approx(median_hz, rel=0.03)
    # Each follows a voice into its ends, where it falls, as far as it finds a period there.
    assert (pitch.p25_hz, pitch.p75_hz) == pytest.approx((p25_hz, p75_hz), rel=0.08)


@pytest.mark.parametrize(("language", "rate"), [*product(TEXTS, (30_000, 36_000))])
def test_voices_up_to_four_hundred_hz_too(language: str, rate: int) -> None:
    sound = spoken(language, "f1", 60)  # played faster than it was spoken
    pitch = measure(sound, rate)
    _, median_hz, _ = praats_quartiles_hz(sound, rate)
    assert 230 < median_hz < 430
    assert pitch is not None
    assert pitch.f0_hz == pytest.approx(median_hz, rel=0.03)


@pytest.mark.parametrize("f0_hz", [55, 60, 61, 104.5, 150, 217.3, 300, 399, 400, 440, 500])
@pytest.mark.parametrize("sample_rate", [16_000, 22_050, 24_000])
def test_tones_are_within_one_hz(f0_hz: float, sample_rate: int) -> None:
    phase = 2 * np.pi * f0_hz * np.arange(sample_rate) / sample_rate
    for sound in (np.sin(phase), np.sin(phase) + np.sin(2 * phase + 1) + np.sin(3 * phase + 2)):
        pitch = measure(sound, sample_rate)
        assert pitch is not None
        assert pitch.f0_hz == pytest.approx(f0_hz, abs=1)
        assert pitch.f0_hz == pytest.approx(praats_quartiles_hz(sound, sample_rate)[1], abs=1)
