"""Pitch of sounds whose pitch is known, and of speech beside Praat's, the measure of the field."""

from itertools import product

import numpy as np
import parselmouth
import pytest

from audio.pitch import FEWEST_WINDOWS, HIGHEST_HZ, LOWEST_HZ, STEP_S, Pitch, measure
from models.espeak import library
from models.espeak.library import SAMPLE_RATE, Manner

RATES = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)


def times_of(sample_rate: int, seconds: float = 1.5) -> np.ndarray:
    return np.arange(int(seconds * sample_rate)) / sample_rate


def noise(count: int, loudness: float = 1.0) -> np.ndarray:
    return loudness * np.random.default_rng(7).standard_normal(count)


def measured(sound: np.ndarray, sample_rate: int) -> Pitch:
    pitch = measure(sound, sample_rate)
    assert pitch is not None
    return pitch


@pytest.mark.parametrize("sample_rate", RATES)
def test_tones_are_within_three_per_cent_also_in_noise(sample_rate: int) -> None:
    for f0_hz in (70, 98, 141, 205, 287, 395):
        phase = 2 * np.pi * f0_hz * times_of(sample_rate)
        overtones = sum(np.sin(k * phase + k) for k in (2, 3, 4))
        for sound in (np.sin(phase), np.sin(phase) + 2 * np.sin(2 * phase), np.sin(phase) + overtones, overtones):
            pitch = measured((0.2 * sound + noise(len(phase), 0.02)).astype(np.float32), sample_rate)
            assert pitch.f0_hz == pytest.approx(f0_hz, rel=0.03)
            assert pitch.p25_hz <= pitch.f0_hz <= pitch.p75_hz
            assert pitch.voiced_windows > 140


def test_quartiles_of_a_glide() -> None:
    times = times_of(24_000, 3)
    pitch = measured(np.sin(2 * np.pi * (100 * times + 100 / 6 * times**2)), 24_000)  # 100 to 200 Hz
    assert (pitch.p25_hz, pitch.f0_hz, pitch.p75_hz) == pytest.approx((125, 150, 175), rel=0.02)


def test_only_the_voiced_part_counts() -> None:
    tone = np.sin(2 * np.pi * 120 * times_of(24_000, 1))
    pitch = measured(np.concatenate([noise(24_000, 0.3), tone, np.zeros(24_000), tone / 20]), 24_000)
    assert pitch.f0_hz == pytest.approx(120, rel=0.01)
    assert 90 <= pitch.voiced_windows <= 105


def test_loudness_and_offset_change_nothing_and_what_has_no_pitch_gives_none() -> None:
    tone = np.sin(2 * np.pi * 180 * times_of(24_000))
    assert measure(tone / 10_000 + 0.4, 24_000) == pytest.approx(measure(tone, 24_000), rel=1e-3)
    for sound in (np.zeros(0), np.zeros(100), np.zeros(48_000), np.full(48_000, 0.5), noise(48_000)):
        assert measure(sound, 24_000) is None


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_fewest_windows(extra: int) -> None:
    count = 2 * (int(24_000 / LOWEST_HZ) + 2) + int(24_000 * STEP_S) * (FEWEST_WINDOWS + extra - 1)
    pitch = measure(np.sin(2 * np.pi * 200 * np.arange(count) / 24_000), 24_000)
    assert (pitch is None) if extra < 0 else (pitch is not None and pitch.voiced_windows == FEWEST_WINDOWS + extra)


# Beside Praat, with the same bounds and steps

TEXTS = {
    "en": "The quick brown fox runs along the river, and nobody knows where it will go tomorrow morning.",
    "de": "Guten Tag, ich freue mich sehr, dass Sie heute da sind, und erzähle Ihnen gern von unserer Stadt.",
}


def praats_quartiles_hz(samples: np.ndarray, sample_rate: int) -> tuple[float, float, float]:
    track = parselmouth.Sound(samples.astype(np.float64), sample_rate).to_pitch(STEP_S, LOWEST_HZ, HIGHEST_HZ)
    heights = track.selected_array["frequency"]
    p25, median, p75 = np.percentile(heights[heights > 0], (25, 50, 75))
    return float(p25), float(median), float(p75)


def spoken(language: str, variant: str, setting: int) -> np.ndarray:
    return library.speak(TEXTS[language], Manner(f"{language}+{variant}", pitch=setting))


@pytest.mark.parametrize("language", TEXTS)
def test_speech_is_within_three_per_cent(language: str) -> None:
    for variant, setting in product(("m2", "m3", "m7", "f1", "f5"), (0, 30, 60, 99)):
        sound = spoken(language, variant, setting)
        pitch, (p25_hz, median_hz, p75_hz) = measured(sound, SAMPLE_RATE), praats_quartiles_hz(sound, SAMPLE_RATE)
        assert pitch.f0_hz == pytest.approx(median_hz, rel=0.03), (variant, setting)
        # Each follows a voice into its ends, where it falls, as far as it finds a period there.
        assert (pitch.p25_hz, pitch.p75_hz) == pytest.approx((p25_hz, p75_hz), rel=0.08), (variant, setting)
    for rate in (30_000, 36_000):  # voices up to 400 Hz too: played faster than it was spoken
        sound = spoken(language, "f1", 60)
        _, median_hz, _ = praats_quartiles_hz(sound, rate)
        assert 230 < median_hz < 430
        assert measured(sound, rate).f0_hz == pytest.approx(median_hz, rel=0.03)


@pytest.mark.parametrize("sample_rate", [16_000, 22_050, 24_000])
def test_tones_are_within_one_hz(sample_rate: int) -> None:
    for f0_hz in (55, 60, 61, 104.5, 150, 217.3, 300, 399, 400, 440, 500):
        phase = 2 * np.pi * f0_hz * np.arange(sample_rate) / sample_rate
        for sound in (np.sin(phase), np.sin(phase) + np.sin(2 * phase + 1) + np.sin(3 * phase + 2)):
            pitch = measured(sound, sample_rate)
            assert pitch.f0_hz == pytest.approx(f0_hz, abs=1)
            assert pitch.f0_hz == pytest.approx(praats_quartiles_hz(sound, sample_rate)[1], abs=1)
