"""What a voice designer is asked and what it gives back: the job and the protocol of voice design."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from contract.speech.engine import Clip


@dataclass(frozen=True, slots=True)
class DesignJob:
    """A voice to make.

    Attributes:
        text: what it says in its clip: the sample sentence of `language`.
        language: ISO 639-1.
        instruct: the whole description, in words, for engines that read one.
        gender, age_years: as ordered.
        traits: axis to id of the trait, e.g. `{"timbre": "deep"}`, for engines that read no description.
        speed: of speaking, that the traits ask for; 1 is the engine's own.
        target_hz: median pitch to reach.
        band_hz: lowest and highest median that is accepted.
        attempts: sentences that may be spoken for it.
        seed: of all that is drawn by chance: the same job gives the same voice on one machine.
    """

    text: str
    language: str
    instruct: str
    gender: Literal["m", "f"]
    age_years: int
    traits: Mapping[str, str]
    speed: float
    target_hz: int
    band_hz: tuple[float, float]
    attempts: int
    seed: int


@dataclass(frozen=True, slots=True)
class DesignResult:
    """The best attempt.

    Attributes:
        clip: the voice says the text of the job, which is its transcript.
        sample: the same as an MP3 file, marked as all sound is.
        recipe: how the speech engine of the same runtime speaks the voice; None where it imitates the clip.
        f0_hz, p25_hz, p75_hz: median pitch and quartiles over the voiced windows of the clip.
        voiced_windows: of 10 ms, how many there are.
        in_band: whether the median is in the band of the job.
        attempts_used: sentences that were spoken.
        seconds: of synthesis, over all attempts; what is billed.
    """

    clip: Clip
    sample: bytes
    recipe: str | None
    f0_hz: float
    p25_hz: float
    p75_hz: float
    voiced_windows: int
    in_band: bool
    attempts_used: int
    seconds: float


class VoiceDesignEngine(Protocol):
    """A designer of voices: an adapter in `models.voice_design`, its replica, or the gate before it."""

    async def design(self, job: DesignJob) -> DesignResult:
        """The voice. Raises UPSTREAM_ERROR where no attempt gave a voice at all."""
        ...
