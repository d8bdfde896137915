"""Brief, job, result and protocol of a voice designer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from contract.speech.engine import Clip


@dataclass(frozen=True, slots=True)
class VoiceBrief:
    """Description of the desired voice.

    Attributes:
        gender, age_years: as ordered.
        language: language of the sample sentence, ISO 639-1.
        traits: axis to id of each trait, ordered or random, e.g. `{"timbre": "deep"}`, for engines that read no
            description.
        speed: factor on the engine's own speed, from the traits.
        instruct: whole description in words, derived or from the client, for engines that read one.
        target_hz: median pitch to reach.
        band_hz: lowest and highest accepted median.
        seed: seed of all random choices: on one machine, the same job gives the same voice.
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
    """A voice to design, which speaks the sample sentence `text`, in at most `attempts` attempts."""

    text: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceMeasurement:
    """Measurement of the best attempt.

    Attributes:
        f0_hz, p25_hz, p75_hz: median pitch and quartiles over the voiced windows of the clip.
        voiced_windows: number of voiced windows of 10 ms.
        in_band: whether the median is in the band of the job.
        attempts_used: sentences that were spoken.
    """

    f0_hz: float
    p25_hz: float
    p75_hz: float
    voiced_windows: int
    in_band: bool
    attempts_used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignResult(VoiceMeasurement):
    """The best attempt.

    Attributes:
        clip: the voice with the text of the job, which is its transcript.
        sample: the clip as an MP3 file, marked as AI-generated like all audio.
        recipe: recipe of the voice for the speech engine of the same runtime; None if that imitates the clip.
        seconds: seconds of synthesis over all attempts, which are billed.
    """

    clip: Clip
    sample: bytes
    recipe: str | None
    seconds: float


class VoiceDesignEngine(Protocol):
    """A designer of voices: an adapter in `models.voice_design`, or its replica. The gate calls its methods by name."""

    async def design(self, job: DesignJob) -> DesignResult:
        """Returns the voice. Raises UPSTREAM_ERROR if no attempt produced one."""
