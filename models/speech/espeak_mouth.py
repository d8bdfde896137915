"""espeak-ng as a mouth: a language, the settings of a voice, and the changes of a style or a mark."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from models.espeak import library
from models.espeak.library import Manner
from models.espeak.voices import VoiceSettings
from models.speech.manners import Change, Sound

if TYPE_CHECKING:
    import numpy as np

    Samples = np.ndarray[Any, np.dtype[np.float32]]


class EspeakMouth:
    """Speaks for one job.

    Args:
        language: espeak's name for it.
        settings: of the voice.
        speed: a factor of its rate.
        volume: 100 is the library's own.
    """

    sample_rate = library.SAMPLE_RATE

    def __init__(self, language: str, settings: VoiceSettings, speed: float, volume: float = 100) -> None:
        voice = f"{language}+{settings.variant}"
        self._manner = Manner(voice, settings.rate * speed, settings.pitch, settings.range, volume)

    def speak(self, text: str, change: Change) -> Sequence[Sound]:
        """One sound."""
        own = self._manner
        manner = own._replace(
            rate=own.rate * change.rate,
            pitch=own.pitch + change.pitch,
            range=own.range + change.range,
            volume=own.volume * change.volume,
        )
        return [partial(library.speak, text, manner)]
