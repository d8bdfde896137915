"""A voice as a mixture of Kokoro's styles, solved for the wanted pitch and corrected by measurements.

A ladder is a row of voices that differ in pitch alone, and its setting picks one:

    Kokoro speaks       share of the higher end of two mixtures, 0 to 1
    espeak-ng speaks    its setting of pitch, 0 to 99

The voice is its weights: adopted voices are spoken from them. It always has both halves. Where Kokoro lacks the
language of the job, that of espeak-ng is measured and corrected, and the styles follow what is known of them; and the
other way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from contract.catalog import VoiceDesignModel
from contract.voice_design.engine import DesignJob
from models import SOUND
from models.espeak import library
from models.espeak.voices import VoiceSettings, language_of, reach
from models.kokoro.speaker import IMPORTS, SAMPLE_RATE, Kokoro
from models.kokoro.styles import KokoroVoice
from models.voice_design.adapter import DesignAdapter, Try
from models.voice_design.palette import Ends, ends, mixed, outermost, pitch_of, requested_sound
from models.weights.files import need_folder

if TYPE_CHECKING:
    from audio.encoding import Samples

VARIANTS = {"f": ("f1", "f2", "f3", "f4", "f5"), "m": ("m1", "m2", "m3", "m5", "m7")}
"""Variants of espeak-ng that sound like people, by gender."""

USUAL_RANGE, RANGE_PER_LIVELINESS = 50, 20

ALIKE = 0.004
"""Settings that differ by no more of a ladder's length sound the same."""


@dataclass(frozen=True, slots=True)
class PitchRange:
    """Voices that differ in pitch alone.

    Attributes:
        number: 0 for the first of a job.
        ends: the lower and the higher mixture.
        variant: variant of espeak-ng.
    """

    number: int
    ends: Ends
    variant: str


@dataclass(frozen=True, slots=True)
class PitchCandidate:
    """A voice of a ladder."""

    ladder: PitchRange
    setting: float
    voice: KokoroVoice


class KokoroDesigner(DesignAdapter[PitchCandidate]):
    """Designs with one network, one voice at a time."""

    imports = SOUND + IMPORTS
    sample_rate = SAMPLE_RATE

    def __init__(self, model: VoiceDesignModel, path: Path | None) -> None:
        super().__init__(model, path)
        self._kokoro = Kokoro(need_folder(path, model.id), self.serving.threads)
        if unknown := set(self.serving.languages) - set(self._kokoro.languages):
            raise ValueError(f"Kokoro does not speak `{min(unknown)}`, which `{model.id}` names")

    def propose(self, job: DesignJob, tries: Sequence[Try[PitchCandidate]]) -> PitchCandidate | None:
        for ladder in self._ladders(job, sum(attempt.pitch is None for attempt in tries)):
            rung = self._rung(job, ladder, tries)
            if rung.voice not in [attempt.voice.voice for attempt in tries]:
                return rung
        return None

    def speak(self, job: DesignJob, voice: PitchCandidate) -> Samples:
        import soxr

        if job.language in self.serving.languages:
            return self._kokoro.speak(job.text, job.language, voice.voice)
        settings = voice.voice.espeak
        assert settings is not None
        sound = library.speak(job.text, settings.manner(language_of(job.language)))
        resampled: Samples = soxr.resample(sound, library.SAMPLE_RATE, SAMPLE_RATE)
        return resampled

    def recipe(self, voice: PitchCandidate) -> str:
        return voice.voice.model_dump_json()

    def _ladders(self, job: DesignJob, failures: int) -> Iterator[PitchRange]:
        """One that was drawn, again after each failure; then, if it does not reach far enough, the longest one."""
        draw = Random(f"{job.seed} {failures}")
        variant = _variant(job, draw)
        yield PitchRange(0, ends(job, self._kokoro.styles, draw), variant)
        if job.language in self.serving.languages:
            yield PitchRange(1, outermost(self._kokoro.styles), variant)

    def _rung(self, job: DesignJob, ladder: PitchRange, tries: Sequence[Try[PitchCandidate]]) -> PitchCandidate:
        """The voice of a ladder that should come nearest to the target, by all measurements of the ladder."""
        points = [Point(t.voice.setting, t.pitch.f0_hz) for t in tries if t.pitch and t.voice.ladder == ladder]
        shares = [Point(0.0, pitch_of(ladder.ends.below)), Point(1.0, pitch_of(ladder.ends.above))]
        pitches = _pitches(job.language, ladder.variant)
        speaks_itself = job.language in self.serving.languages
        of_shares, of_pitches = (points, []) if speaks_itself else ([], points)
        share = setting_for(job.target_hz, shares, of_shares)
        share = next((point.setting for point in of_shares if abs(point.setting - share) <= ALIKE), share)
        pitch = round(setting_for(job.target_hz, pitches, of_pitches))
        liveliness = requested_sound(job).liveliness
        voice = KokoroVoice(
            styles=mixed(ladder.ends, share),
            speed=job.speed,
            espeak=VoiceSettings(
                variant=ladder.variant,
                pitch=pitch,
                range=round(USUAL_RANGE + RANGE_PER_LIVELINESS * liveliness),
                rate=job.speed,
            ),
        )
        return PitchCandidate(ladder, share if speaks_itself else float(pitch), voice)


def _pitches(language: str, variant: str) -> list[Point]:
    """Pitches that espeak-ng reaches, except at the lowest setting, where it creaks."""
    return [Point(*point) for point in reach(f"{language_of(language)}+{variant}")[1:]]


def _variant(job: DesignJob, draw: Random) -> str:
    """A voice of espeak-ng that reaches the target, of the right gender if there is one."""

    def miss_hz(variant: str) -> float:
        lowest, *_, highest = _pitches(job.language, variant)
        return max(lowest.f0_hz - job.target_hz, job.target_hz - highest.f0_hz, 0.0)

    other = "m" if job.gender == "f" else "f"
    drawn = [*draw.sample(VARIANTS[job.gender], 5), *draw.sample(VARIANTS[other], 5)]
    return min(drawn, key=miss_hz)


STEPS = 400
"""Places at which the corrected curve is looked at."""


class Point(NamedTuple):
    """A setting, and the median pitch in Hz that it gives."""

    setting: float
    f0_hz: float


def setting_for(target_hz: float, expected: Sequence[Point], measured: Sequence[Point]) -> float:
    """The setting with the expected pitch nearest to `target_hz`; the lowest or highest where that is out of reach.

    Measurements correct the expectation in octaves, as pitch is perceived. With two measurements around the target this
    is the secant method.

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
        points = np.array(sorted(measured), float)
        errors = np.log2(points[:, 1]) - np.interp(points[:, 0], curve[:, 0], np.log2(curve[:, 1]))
        octaves = octaves + np.interp(settings, points[:, 0], errors)
    return float(settings[np.argmin(np.abs(octaves - np.log2(target_hz)))])
