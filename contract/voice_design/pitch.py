"""Target pitch of a voice by gender and age, and the band of accepted pitches.

    target_hz(gender, age_years, semitones)     from the anchors, shifted by the timbre
    band_hz(target, half_width)                 accepted medians

Between the anchors the pitch is linear. The anchors are estimates that combine several studies, because no single study
has all ages of both: men fall from their twenties to their forties and rise from there (Shipp and Hollien 1972,
n = 175); the usual adult speaks at about 120 Hz or 210 Hz (Traunmueller and Eriksson 1995); women fall from their
twenties to their eighties, men rise a little after seventy (Nishio and Niimi 2008, n = 374); the gap between them
shrinks with age, from 9 semitones in the twenties to 6 in the seventies (Fisher corpus, n = 11,971; here 10 at 25 and 6
at 70).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

from contract.limits import TARGET_HZ

ANCHORS_HZ: dict[Literal["m", "f"], tuple[tuple[int, int], ...]] = {
    "m": ((16, 124), (20, 118), (30, 112), (40, 108), (50, 112), (60, 118), (70, 126), (80, 138), (90, 142)),
    "f": ((16, 218), (20, 210), (30, 200), (40, 195), (50, 188), (60, 182), (70, 178), (80, 175), (90, 172)),
}
"""Gender to (age in years, median pitch of speech in Hz), youngest first."""

DERIVED_SEMITONES = 2.0
"""Half width of the band around a pitch that follows from gender and age."""
ORDERED_SEMITONES = 1.5
"""Half width of the band around a pitch that was ordered as such."""

PITCH_WORDS = ((-3.5, "very low-pitched"), (-0.75, "low-pitched"), (0.75, "medium-pitched"), (3.5, "high-pitched"))
"""Semitones from the usual pitch for gender and age, and the name of a pitch up to there."""
HIGHEST_WORD = "very high-pitched"


def usual_hz(gender: Literal["m", "f"], age_years: int) -> float:
    """Returns the usual median pitch at an age from 16 to 90, in Hz."""
    for (age, hz), (next_age, next_hz) in pairwise(ANCHORS_HZ[gender]):
        if age_years <= next_age:
            return hz + (next_hz - hz) * (age_years - age) / (next_age - age)
    raise ValueError(f"{age_years} years are beyond the last anchor")


def target_hz(gender: Literal["m", "f"], age_years: int, semitones: float) -> int:
    """Returns the pitch to reach, in whole Hz, `semitones` from the usual one, within the range of orders."""
    low, high = TARGET_HZ
    return min(max(round(usual_hz(gender, age_years) * 2 ** (semitones / 12)), low), high)


def band_hz(target: int, half_width: float) -> tuple[float, float]:
    """Returns the lowest and highest accepted median, in Hz: `half_width` semitones about `target`.

    The band may reach beyond the range of orders: an order of the lowest pitch accepts slightly lower ones.
    """
    ratio = 2 ** (half_width / 12)
    return round(target / ratio, 1), round(target * ratio, 1)


def pitch_words(gender: Literal["m", "f"], age_years: int, hz: int) -> str:
    """Returns the name of a pitch for a voice of this gender and age."""
    semitones = 12 * math.log2(hz / usual_hz(gender, age_years))
    return next((words for limit, words in PITCH_WORDS if semitones <= limit), HIGHEST_WORD)
