"""Base of every designer: a voice is proposed, spoken, measured and judged, until one is in the band.

propose(job, tries)     the next voice to try, from the measurements of those before; the designer's own part
speak(job, voice)       the sentence of the job in that voice; the designer's own part
design(job)             the best attempt, with what was measured of it
"""

from __future__ import annotations

import logging
import time
import unicodedata
from abc import abstractmethod
from collections.abc import Generator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from audio import signing
from contract.catalog import VoiceDesignModel
from contract.errors import UPSTREAM_ERROR
from contract.speech.engine import Clip
from contract.voice_design.engine import DesignJob, DesignResult, VoiceDesignEngine
from models.stepping import Stepper, ThreadedAdapter

if TYPE_CHECKING:
    from audio.encoding import Samples
    from audio.pitch import Pitch

log = logging.getLogger(f"parlance.{__name__}")

UNITS_PER_S = (4.0, 45.0)
"""Speech of fewer or more units a second is no reading of the text. A character is one, a syllable of Chinese three."""

UNITS_OF_WIDE = 3

LEAST_VOICED = 0.2
"""Least share of the sound that is voiced; whispers and noise have less."""

WINDOWS_PER_S = 100

QUIET = 0.01
"""Share of the loudest sample below which the beginning and the end are silence (-40 dB)."""

MARGIN_S = 0.05

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Try(Generic[V]):
    """A voice that was tried.

    Attributes:
        voice: in the designer's own words.
        pitch: measured pitch; None if no voice says the text.
    """

    voice: V
    pitch: Pitch | None


@dataclass(frozen=True, slots=True)
class Candidate(Generic[V]):
    """A try that can be delivered, with its sound: float32 mono [n], -1 to 1."""

    voice: V
    samples: Samples
    pitch: Pitch


class DesignAdapter(ThreadedAdapter, VoiceDesignEngine, Generic[V]):
    """One designer. Subclasses load in their constructor, after this one; `V` is what they call a voice."""

    sample_rate: int = 24_000
    """Samples per second of the sound that `speak` returns."""

    _workers: Stepper

    def __init__(self, model: VoiceDesignModel, path: Path | None) -> None:
        self.model = model
        self.serving = model.setup
        self._workers = Stepper(self.serving.max_ongoing_requests, self.serving.deadline_s, model.id)
        self._signature = signing.configured()

    @abstractmethod
    def propose(self, job: DesignJob, tries: Sequence[Try[V]]) -> V | None:
        """The voice to try next, None where nothing better is to be expected. The first one is never None."""

    @abstractmethod
    def speak(self, job: DesignJob, voice: V) -> Samples:
        """The sentence: float32 mono [n]; what is beyond -1 to 1 is cut. Empty where the voice never ended. Blocks."""

    @abstractmethod
    def recipe(self, voice: V) -> str | None:
        """Returns the recipe for the speech engine of the same runtime; None if that imitates the clip."""

    async def design(self, job: DesignJob) -> DesignResult:
        designed: DesignResult | None = None
        async with aclosing(self._workers.run(self._attempts(job))) as steps:
            async for step in steps:
                designed = step
        if designed is None:
            raise UPSTREAM_ERROR()
        return designed

    def _attempts(self, job: DesignJob) -> Generator[DesignResult | None]:
        """Steps of one attempt each; the last one is the best attempt, or None where none can be delivered."""
        tries: list[Try[V]] = []
        best: Candidate[V] | None = None
        seconds = 0.0
        while len(tries) < job.attempts and (voice := self.propose(job, tries)) is not None:
            started_s = time.monotonic()
            sound = self.speak(job, voice)
            seconds += time.monotonic() - started_s
            samples = trimmed(sound.clip(-1, 1), self.sample_rate)
            pitch = pitch_of_attempt(samples, self.sample_rate, job)
            tries.append(Try(voice, pitch))
            if pitch and (best is None or _miss(pitch, job) < _miss(best.pitch, job)):
                best = Candidate(voice, samples, pitch)
            log.info(
                "attempt %d: measured %s Hz, target %d Hz", len(tries), pitch and round(pitch.f0_hz), job.target_hz
            )
            if best and in_band(best.pitch, job):
                break
            yield None
        yield self._designed(job, best, len(tries), seconds) if best else None

    def _designed(self, job: DesignJob, best: Candidate[V], attempts: int, seconds: float) -> DesignResult:
        import numpy as np

        from audio.encoding import encoded
        from audio.provenance import Provenance

        marks = Provenance(self.model.speaker_of(job.language).runtime, int(time.time()))
        sample = encoded(best.samples, "mp3", self.sample_rate, marks)
        pcm = np.rint(best.samples * 32_767).astype("<i2").tobytes()
        return DesignResult(
            clip=Clip(pcm, self.sample_rate, job.text),
            sample=self._signature.sign(sample, "mp3") if self._signature else sample,
            recipe=self.recipe(best.voice),
            f0_hz=best.pitch.f0_hz,
            p25_hz=best.pitch.p25_hz,
            p75_hz=best.pitch.p75_hz,
            voiced_windows=best.pitch.voiced_windows,
            in_band=in_band(best.pitch, job),
            attempts_used=attempts,
            seconds=seconds,
        )


def trimmed(samples: Samples, sample_rate: int) -> Samples:
    """The samples without the silence at both ends, but for a short margin; empty if all of it is silent."""
    import numpy as np

    loud = np.flatnonzero(np.abs(samples) > QUIET * np.abs(samples).max(initial=0))
    if not len(loud):
        return samples[:0]
    margin = int(MARGIN_S * sample_rate)
    return samples[max(0, loud[0] - margin) : loud[-1] + 1 + margin]


def pitch_of_attempt(samples: Samples, sample_rate: int, job: DesignJob) -> Pitch | None:
    """The pitch of an attempt, None where it is no voice that says the text of the job."""
    from audio.pitch import measure

    seconds = len(samples) / sample_rate
    least, most = (rate * job.speed for rate in UNITS_PER_S)
    if not seconds or not least <= _units(job.text) / seconds <= most:
        return None
    pitch = measure(samples, sample_rate)
    return pitch if pitch and pitch.voiced_windows >= LEAST_VOICED * seconds * WINDOWS_PER_S else None


def in_band(pitch: Pitch, job: DesignJob) -> bool:
    """Says if the median is accepted; both ends of the band are."""
    low_hz, high_hz = job.band_hz
    return low_hz <= pitch.f0_hz <= high_hz


def _miss(pitch: Pitch, job: DesignJob) -> float:
    """Octaves from the target."""
    return abs(log2(pitch.f0_hz / job.target_hz))


def _units(text: str) -> int:
    return sum(UNITS_OF_WIDE if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
