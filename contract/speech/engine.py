"""Job, audio and protocol of a speech engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from contract.catalog import AudioFormat


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording of a voice: mono, little-endian 16-bit PCM at `sample_rate` Hz.

    `transcript` is its verbatim text, or None if it is not known.
    """

    samples: bytes
    sample_rate: int
    transcript: str | None = None


@dataclass(frozen=True, slots=True)
class SpeechJob:
    """A text to speak.

    Attributes:
        text: text without tags that the engine does not know.
        language: ISO 639-1 code, requested or detected in the text.
        voice: slug of one of the engine's fixed voices; None for its default, or with a clip or a recipe.
        clip: recording of the voice to imitate.
        recipe: designed voice, in the format of the engine that designed it (`contract.voice_design.engine`).
        style: instruction in natural language.
        speed: factor on the engine's own speed.
        format: one of the engine's formats.
        owner: organisation that the work is for; owners take turns.
    """

    text: str
    language: str
    voice: str | None = None
    clip: Clip | None = None
    recipe: str | None = None
    style: str | None = None
    speed: float = 1.0
    format: AudioFormat = "wav"
    owner: str = ""

    @property
    def has_voice(self) -> bool:
        """True if the job names a voice, and does not leave it to the engine."""
        return bool(self.voice or self.clip or self.recipe)


@dataclass(frozen=True, slots=True)
class AudioBlock:
    """Next bytes of the file; the blocks in order are the whole file.

    `characters` of the text and `seconds` of audio count this and all earlier blocks.
    """

    data: bytes
    characters: int
    seconds: float


class SpeechEngine(Protocol):
    """A text-to-speech engine: an adapter in `models.speech`, or its replica. The gate calls its methods by name."""

    def speak(self, job: SpeechJob) -> AsyncGenerator[AudioBlock, None]:
        """Yields the file in blocks; leaving the iteration frees the engine."""

    async def speak_whole(self, job: SpeechJob) -> AudioBlock:
        """Returns the whole file, or raises."""
