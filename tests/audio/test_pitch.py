"""Pitch of sounds whose pitch is known."""

from __future__ import annotations

import numpy as np
import pytest

from audio.pitch import FEWEST_WINDOWS, LOWEST_HZ, STEP_S, measure

RATES = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)


def times_of(sample_rate: int, seconds: float = 1.5) -> np.ndarray:
    return np.arange(int(seconds * sample_rate)) / sample_rate


def noise(count: int, loudness: float = 1.0) -> np.ndarray:
    return loudness * np.random.default_rng(7).standard_normal(count)


@pytest.mark.parametrize("sample_rate", RATES)
@pytest.mark.parametrize("f0_hz", [70, 98, 141, 205, 287, 395])
def test_tones_are_within_three_per_cent_also_in_noise(f0_hz: int, sample_rate: int) -> None:
    phase = 2 * np.pi * f0_hz * times_of(sample_rate)
    overtones = sum(np.sin(k * phase + k) for k in (2, 3, 4))
    for sound in (np.sin(phase), np.sin(phase) + 2 * np.sin(2 * phase), np.sin(phase) + overtones, overtones):
        pitch = measure((0.2 * sound + noise(len(phase), 0.02)).astype(np.float32), sample_rate)
        assert pitch is not None
        assert pitch.f0_hz == pytest.approx(f0_hz, rel=0.03)
        assert pitch.p25_hz <= pitch.f0_hz <= pitch.p75_hz
        assert pitch.voiced_windows > 140


def test_quartiles_of_a_glide() -> None:
    times = times_of(24_000, 3)
    pitch = measure(np.sin(2 * np.pi * (100 * times + 100 / 6 * times**2)), 24_000)  # 100 to 200 Hz
    assert pitch is not None
    assert (pitch.p25_hz, pitch.f0_hz, pitch.p75_hz) == pytest.approx((125, 150, 175), rel=0.02)


def test_only_the_voiced_part_counts() -> None:
    tone = np.sin(2 * np.pi * 120 * times_of(24_000, 1))
    pitch = measure(np.concatenate([noise(24_000, 0.3), tone, np.zeros(24_000), tone / 20]), 24_000)
    assert pitch is not None
    assert pitch.f0_hz == pytest.approx(120, rel=0.01)
    assert 90 <= pitch.voiced_windows <= 105


def test_loudness_and_offset_change_nothing() -> None:
    tone = np.sin(2 * np.pi * 180 * times_of(24_000))
    assert measure(tone / 10_000 + 0.4, 24_000) == pytest.approx(measure(tone, 24_000), rel=1e-3)


@pytest.mark.parametrize("sound", [np.zeros(0), np.zeros(100), np.zeros(48_000), np.full(48_000, 0.5), noise(48_000)])
def test_what_has_no_pitch_gives_none(sound: np.ndarray) -> None:
    assert measure(sound, 24_000) is None


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_fewest_windows(extra: int) -> None:
    count = 2 * (int(24_000 / LOWEST_HZ) + 2) + int(24_000 * STEP_S) * (FEWEST_WINDOWS + extra - 1)
    pitch = measure(np.sin(2 * np.pi * 200 * np.arange(count) / 24_000), 24_000)
    assert (pitch is None) if extra < 0 else (pitch is not None and pitch.voiced_windows == FEWEST_WINDOWS + extra)
