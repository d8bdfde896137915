"""Which setting of a voice comes to a wanted pitch: what was expected, corrected by what was measured.

    expected = [Point(0.0, 92.0), Point(1.0, 228.0)]          a share of the higher of two styles, and its pitch
    setting_for(130.0, expected, [])                          0.38
    setting_for(130.0, expected, [Point(0.38, 121.0)])        0.46: the voice came out lower than expected

Pitch is compared in octaves, as it is heard. With two measurements around the target this is the secant method.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

STEPS = 400
"""Places at which the corrected curve is looked at."""


class Point(NamedTuple):
    """A setting, and the median pitch in Hz that it gives."""

    setting: float
    f0_hz: float


def setting_for(target_hz: float, expected: Sequence[Point], measured: Sequence[Point]) -> float:
    """The setting whose pitch should come nearest to `target_hz`; the lowest or highest where that is out of reach.

    Args:
        target_hz: pitch wanted.
        expected: at least one point, settings rising. Between two the pitch moves evenly.
        measured: any number, in any order.
    """
    import numpy as np

    curve = np.array(expected, float)
    settings = np.linspace(curve[0, 0], curve[-1, 0], STEPS + 1)
    settings = np.union1d(settings, [point.setting for point in measured])
    octaves = np.interp(settings, curve[:, 0], np.log2(curve[:, 1]))
    if measured:
        seen = np.array(sorted(measured), float)
        errors = np.log2(seen[:, 1]) - np.interp(seen[:, 0], curve[:, 0], np.log2(curve[:, 1]))
        octaves = octaves + np.interp(settings, seen[:, 0], errors)
    return float(settings[np.argmin(np.abs(octaves - np.log2(target_hz)))])
