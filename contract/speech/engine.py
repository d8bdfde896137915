"""What a speech engine is asked and what it gives back: the job and the protocol of speech."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from contract.catalog import AudioFormat


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording of a voice: mono, little-endian 16-bit PCM at `sample_rate` Hz.

    `transcript` is what is said in it, word for word, or None if nobody knows.
    """

    samples: bytes
    sample_rate: int
    transcript: str | None = None


@dataclass(frozen=True, slots=True)
class SpeechJob:
    """A text to speak.

    Attributes:
        text: without tags that the engine does not know.
        language: ISO 639-1; the one requested, or the one that the text seems to be in.
        voice: slug of one of the engine's fixed voices; None for its own default, or where a clip or recipe stands.
        clip: the voice to imitate.
        recipe: a designed voice, in the words of the engine that designed it (`contract.voice_design.engine`).
        style: a natural-language instruction.
        speed: 1 is the engine's own.
        format: one of the engine's formats.
        owner: for whom; owners take turns.
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
        """Whether it says who speaks, and does not leave that to the engine."""
        return bool(self.voice or self.clip or self.recipe)


@dataclass(frozen=True, slots=True)
class AudioBlock:
    """The next bytes of the file; blocks in order are the file.

    `characters` of the text, and `seconds` of sound, are in this and all earlier blocks.
    """

    data: bytes
    characters: int
    seconds: float


class SpeechEngine(Protocol):
    """A text-to-speech engine, wherever it runs: an adapter in `models.speech`, its replica, or the gate before it."""

    def speak(self, job: SpeechJob) -> AsyncGenerator[AudioBlock, None]:
        """The file as it grows; leaving the iteration frees the engine."""
        ...

    async def speak_whole(self, job: SpeechJob) -> AudioBlock:
        """The whole file, or none of it."""
        ...
