"""Measures the pitch of a voice: the fundamental frequency of a recording, by the YIN method.

    measure(samples, 24_000)    Pitch(f0_hz=112.4, p25_hz=101.0, p75_hz=131.2, voiced_windows=412)

For each window, the squared difference between the sound and itself, shifted, is smallest at a whole period.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

LOWEST_HZ, HIGHEST_HZ = 50.0, 550.0
"""Range of pitch that is measured: wider than that of medians, so that a median of 60 or 400 Hz has both its halves."""

STEP_S = 0.01
VOICED_BELOW = 0.4
"""Largest difference at the period, relative to the mean one, of a window that counts as voiced."""

NEARLY_AS_GOOD = 0.06
"""A shorter period wins over a better one if their differences are no further apart: the better may be two periods."""

QUIET_BY = 0.003
"""A window below this part of the loudest one's energy (-25 dB) does not count as voice."""

FEWEST_WINDOWS = 30
WINDOWS_AT_ONCE = 256


class Pitch(NamedTuple):
    """Median and quartiles over the voiced windows of 10 ms, in Hz, and how many of these there are."""

    f0_hz: float
    p25_hz: float
    p75_hz: float
    voiced_windows: int


def measure(samples: Any, sample_rate: int) -> Pitch | None:
    """The pitch of the voiced part of a mono recording, or None if less than 0.3 s of it is voiced.

    `samples` are float [n], of any scale; `sample_rate` is in Hz, at least 2,000.
    """
    import numpy as np

    sound = np.asarray(samples, np.float64)
    window, step = int(sample_rate / LOWEST_HZ) + 2, int(sample_rate * STEP_S)
    if len(sound) < 2 * window:
        return None
    frames = np.lib.stride_tricks.sliding_window_view(sound, 2 * window)[::step]
    energies = np.concatenate([part.var(axis=1) for part in _batches(frames)])
    frames = frames[energies > QUIET_BY * energies.max()]
    periods = np.concatenate([_periods(part, sample_rate, window) for part in _batches(frames)] or [np.empty(0)])
    voiced = sample_rate / periods[np.isfinite(periods)]
    if len(voiced) < FEWEST_WINDOWS:
        return None
    p25, median, p75 = np.percentile(voiced, (25, 50, 75))
    return Pitch(float(median), float(p25), float(p75), len(voiced))


def _batches(frames: Array) -> list[Array]:
    return [frames[start : start + WINDOWS_AT_ONCE] for start in range(0, len(frames), WINDOWS_AT_ONCE)]


def _periods(frames: Array, sample_rate: int, window: int) -> Array:
    """Samples per period of each frame; nan where it is not voiced."""
    import numpy as np

    differences = _differences(frames - frames.mean(axis=1, keepdims=True), window)
    shortest = int(sample_rate / HIGHEST_HZ)
    inner = differences[:, 1:-1]
    dips = (inner <= differences[:, :-2]) & (inner < differences[:, 2:]) & (inner < VOICED_BELOW)
    dips[:, : shortest - 1] = False
    best = np.where(dips, inner, np.inf).min(axis=1, keepdims=True)
    first = np.argmax(dips & (inner <= best + NEARLY_AS_GOOD), axis=1)[:, None]
    # Noise makes several dips of one: the deepest near the first.
    shifts = np.arange(inner.shape[1])
    near = dips & (shifts >= first) & (shifts <= 1.3 * first)
    dip = np.where(near, inner, np.inf).argmin(axis=1) + 1
    left, middle, right = (differences[np.arange(len(frames)), dip + by] for by in (-1, 0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        refined = dip + 0.5 * (left - right) / (left - 2 * middle + right)  # vertex of the parabola through the three
    return np.where(dips.any(axis=1), refined, np.nan)


def _differences(frames: Array, window: int) -> Array:
    """[frames, window]: mean squared difference at each shift, relative to the mean over all shorter shifts."""
    import numpy as np

    size = 1 << (3 * window - 1).bit_length()
    spectrum = np.fft.rfft(frames, size)
    head = np.fft.rfft(frames[:, :window], size)
    products = np.fft.irfft(spectrum * head.conj(), size)[:, :window]
    sums = np.cumsum(np.pad(frames**2, ((0, 0), (1, 0))), axis=1)
    energies = sums[:, window : 2 * window] - sums[:, :window]
    squared = np.maximum(energies[:, :1] + energies - 2 * products, 0)
    shifts = np.arange(1, window)
    means = np.cumsum(squared[:, 1:], axis=1) / shifts
    return np.pad(squared[:, 1:] / np.maximum(means, 1e-20), ((0, 0), (1, 0)), constant_values=1.0)
