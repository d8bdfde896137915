"""What a voice designer is asked and what it gives back: brief, job, result and the protocol of voice design."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from contract.speech.engine import Clip


@dataclass(frozen=True, slots=True)
class VoiceBrief:
    """What a voice is to be.

    Attributes:
        gender, age_years: as ordered.
        language: ISO 639-1, of its sample sentence.
        traits: axis to id of each trait, ordered or drawn, e.g. `{"timbre": "deep"}`, for engines that read no
            description.
        speed: of speaking, that the traits ask for; 1 is the engine's own.
        instruct: the whole description, built or given, in words, for engines that read one.
        target_hz: median pitch to reach.
        band_hz: lowest and highest median that is accepted.
        seed: of all that is drawn by chance: the same job gives the same voice on one machine.
    """

    gender: Literal["m", "f"]
    age_years: int
    language: str
    traits: dict[str, str]
    speed: float
    instruct: str
    target_hz: int
    band_hz: tuple[float, float]
    seed: int


@dataclass(frozen=True, slots=True)
class DesignJob(VoiceBrief):
    """A voice to make, which says `text`, the sample sentence of its language, in at most so many attempts."""

    text: str
    attempts: int


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
