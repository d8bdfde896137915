"""Voices of espeak-ng: a variant and its settings, and the one that comes nearest to a height in Hz."""

from __future__ import annotations

from functools import lru_cache

from pydantic import Field, PositiveFloat

from contract.base import Frozen
from models.espeak import library
from models.espeak.library import SAMPLE_RATE, Manner

FALLBACK_LANGUAGE = "en-us"

NAMES = {"en": "en-us", "zh": "cmn", "no": "nb", "iw": "he", "in": "id"}
"""ISO 639-1 to what espeak calls the language, where that differs."""

MALE, FEMALE = "m3", "f5"
"""Variants that imitate clips; they reach 70 to 170 Hz and 130 to 350 Hz."""

FEMALE_FROM_HZ = 155.0
CALIBRATION_TEXT = "The quick brown fox runs along the river, and nobody knows where it will go tomorrow morning."


class VoiceSettings(Frozen):
    """Recipe of a voice.

    Attributes:
        variant: one of espeak's, e.g. `f2`.
        pitch, range: 0 to 99.
        rate: 1 is 175 words a minute.
    """

    variant: str
    pitch: int = Field(50, ge=0, le=99)
    range: int = Field(50, ge=0, le=99)
    rate: PositiveFloat = 1.0

    def manner(self, language: str, speed: float = 1.0) -> Manner:
        """Returns the settings of espeak-ng for a text in `language`, its own name for it."""
        return Manner(f"{language}+{self.variant}", self.rate * speed, self.pitch, self.range)


def language_of(code: str) -> str:
    """Espeak's name for an ISO 639-1 code; of FALLBACK_LANGUAGE where it does not speak that."""
    language = NAMES.get(code, code)
    return language if library.speaks(language) else FALLBACK_LANGUAGE


def settings_for(f0_hz: float, language: str = FALLBACK_LANGUAGE) -> VoiceSettings:
    """A voice with a median pitch as near to `f0_hz` as espeak can come. `language` is espeak's name for it."""
    import numpy as np

    variant = FEMALE if f0_hz >= FEMALE_FROM_HZ else MALE
    settings, heights_hz = zip(*reach(f"{language}+{variant}"), strict=True)
    return VoiceSettings(variant=variant, pitch=round(float(np.interp(f0_hz, heights_hz, settings))))


@lru_cache(64)
def reach(voice: str) -> tuple[tuple[int, float], ...]:
    """Settings of pitch, lowest first, each with the height in Hz that it was measured to give. E.g. of `de+m3`."""
    from audio.pitch import measure

    measured = []
    for pitch in (0, 17, 33, 50, 67, 83, 99):
        measurement = measure(library.speak(CALIBRATION_TEXT, Manner(voice, pitch=pitch)), SAMPLE_RATE)
        assert measurement is not None, "a sentence of five seconds has voiced parts"
        measured.append((pitch, measurement.f0_hz))
    return tuple(measured)
