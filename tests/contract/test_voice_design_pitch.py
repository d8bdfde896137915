"""Target pitch, band, and the words for a pitch."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from contract.limits import AGE_YEARS, TARGET_HZ
from contract.voice_design.pitch import (
    ANCHORS_HZ,
    DERIVED_SEMITONES,
    ORDERED_SEMITONES,
    band_hz,
    pitch_words,
    target_hz,
    usual_hz,
)
from contract.voice_design.traits import Gender

GENDERS: tuple[Gender, ...] = ("m", "f")
AGES = range(AGE_YEARS[0], AGE_YEARS[1] + 1)


def semitones(hz: float, other: float) -> float:
    return 12 * math.log2(hz / other)


@pytest.mark.parametrize("gender", GENDERS)
def test_an_anchor_is_met_and_between_two_the_pitch_is_linear(gender: Gender) -> None:
    for age, hz in ANCHORS_HZ[gender]:
        assert usual_hz(gender, age) == hz
        assert target_hz(gender, age, 0) == hz
    (age, hz), (later, other) = ANCHORS_HZ[gender][1:3]
    assert usual_hz(gender, (age + later) // 2) == (hz + other) / 2


@pytest.mark.parametrize("gender", GENDERS)
def test_every_age_that_can_be_ordered_has_a_pitch_and_none_beyond(gender: Gender) -> None:
    assert (ANCHORS_HZ[gender][0][0], ANCHORS_HZ[gender][-1][0]) == AGE_YEARS
    pitches = [usual_hz(gender, age) for age in AGES]
    assert all(abs(semitones(one, other)) < 0.5 for one, other in pairwise(pitches))
    with pytest.raises(ValueError, match="91 years"):
        usual_hz(gender, AGE_YEARS[1] + 1)


def test_the_pitch_is_as_the_literature_has_it() -> None:
    assert min(AGES, key=lambda age: usual_hz("m", age)) == 40
    falls = [usual_hz("f", age) for age in AGES]
    assert falls == sorted(falls, reverse=True)
    assert semitones(210, usual_hz("f", 30)) == pytest.approx(0, abs=1)
    assert semitones(120, usual_hz("m", 30)) == pytest.approx(0, abs=1.5)
    young, old = (semitones(usual_hz("f", age), usual_hz("m", age)) for age in (25, 70))
    assert 8.5 < young < 10.5
    assert 5.5 < old < 6.5


@pytest.mark.parametrize("shift", [-2, -1, 0, 1, 2])
def test_a_shift_is_in_semitones(shift: float) -> None:
    for gender in GENDERS:
        assert semitones(target_hz(gender, 40, shift), usual_hz(gender, 40)) == pytest.approx(shift, abs=0.1)


def test_a_target_stays_within_what_can_be_ordered() -> None:
    assert target_hz("m", 40, -12) == TARGET_HZ[0]
    assert target_hz("f", 16, 12) == TARGET_HZ[1]
    assert isinstance(target_hz("f", 33, 1), int)


@pytest.mark.parametrize("target", [60, 61, 97, 120, 210, 399, 400])
@pytest.mark.parametrize("half_width", [DERIVED_SEMITONES, ORDERED_SEMITONES])
def test_a_band_is_as_wide_below_the_target_as_above(target: int, half_width: float) -> None:
    low, high = band_hz(target, half_width)
    assert low < target < high
    assert semitones(target, low) == pytest.approx(half_width, abs=0.02)
    assert semitones(high, target) == pytest.approx(half_width, abs=0.02)


def test_the_band_of_an_ordered_pitch_is_the_narrower() -> None:
    assert (DERIVED_SEMITONES, ORDERED_SEMITONES) == (2.0, 1.5)
    assert band_hz(120, 2.0) == (106.9, 134.7)
    assert band_hz(120, 1.5) == (110.0, 130.9)


@pytest.mark.parametrize(
    ("hz", "words"),
    [(60, "very low"), (95, "low"), (108, "medium"), (120, "high"), (400, "very high")],
)
def test_a_pitch_is_called_by_what_is_usual_for_the_voice(hz: int, words: str) -> None:
    assert pitch_words("m", 40, hz) == f"{words}-pitched"
