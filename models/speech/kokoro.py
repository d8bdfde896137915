"""Kokoro behind the engines of profiles without a GPU, for the languages that its stanza names; else espeak-ng.

Where a job names no voice, Pico speaks the languages that the stanza gives it.

A voice is a mixture of Kokoro's styles, and settings of espeak-ng for all other languages. A clip is imitated in its
pitch alone. What is high or low in a style or a mark is Kokoro's sound, played a little faster or slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from contract.base import Frozen
from contract.catalog import SpeechModel
from contract.speech.engine import Clip, SpeechJob
from models import Imports, pico
from models.espeak import library
from models.espeak.voices import VoiceSettings, language_of, settings_for
from models.kokoro.speaker import IMPORTS, SAMPLE_RATE, Kokoro, paused
from models.kokoro.styles import KokoroVoice, at_home, expected, mixture
from models.options import read
from models.speech.expressive import ExpressiveAdapter, ProsodyChange, Sound, Synthesizer
from models.weights.files import need_folder
from text.sentences import TextPart, sentences

if TYPE_CHECKING:
    from audio.encoding import Samples

SENTENCE_CHARS = 200
FIRST_CHARS = 50
"""The first sentence is cut where a clause ends before here, so that sound comes early."""

STEPS_OF_AN_OCTAVE = 90
"""Steps of pitch, as styles and marks count them."""


class KokoroOptions(Frozen):
    """Options of `KokoroSpeech`: its voices by slug. The first is the engine's own."""

    voices: dict[str, KokoroVoice] = Field(min_length=1)


class KokoroSpeech(ExpressiveAdapter):
    """Speaks for one engine of the catalogue. `serving.threads` bounds the CPU threads of the network."""

    options_type = KokoroOptions
    libraries = IMPORTS + Imports(("py_nanotts",))

    def __init__(self, model: SpeechModel, path: Path | None) -> None:
        super().__init__(model, path)
        self._voices = read(model, KokoroOptions).voices
        self._kokoro = Kokoro(need_folder(path, model.id), self.serving.threads)
        for slug, voice in self._voices.items():
            if unknown := voice.styles.keys() - set(self._kokoro.styles):
                raise ValueError(f"voice `{slug}` of `{model.id}`: Kokoro has no style `{min(unknown)}`")
        if foreign := set(self.serving.languages) - set(self._kokoro.languages):
            raise ValueError(f"Kokoro does not speak `{min(foreign)}`, which the stanza of `{model.id}` assigns to it")
        self._of_pico = set(self.serving.by_default.languages if self.serving.by_default else ())
        if foreign := self._of_pico - pico.VOICES.keys():
            raise ValueError(f"Pico does not speak `{min(foreign)}`, which the stanza of `{model.id}` assigns to it")
        # It speaks, or fails here and not at a client. The first run takes no longer than others, so one vowel will do.
        self._kokoro.speak("a", "en", next(iter(self._voices.values())))

    def cut(self, text: str) -> Iterator[TextPart]:
        """Sentences, the first of which is shorter."""
        first = next(sentences(text, FIRST_CHARS))
        yield first
        for part in sentences(text[first.end :], SENTENCE_CHARS):
            yield TextPart(part.text, first.end + part.end)

    def synthesizer(self, job: SpeechJob) -> Synthesizer:
        if job.language in self._of_pico and not job.has_voice:
            return pico_synthesizer(job)
        voice = self._designed(job) or self._preset(job)
        if job.language in self.serving.languages:
            return kokoro_synthesizer(self._kokoro, job, voice)
        language = language_of(job.language)
        settings = voice.espeak or settings_for(expected(voice.styles).f0_hz, language)
        return espeak_synthesizer(language, settings, job.speed)

    def _designed(self, job: SpeechJob) -> KokoroVoice | None:
        """The voice of a recipe, or one as high as that of a clip; None without, or if there is no pitch."""
        if job.recipe:
            return KokoroVoice.model_validate_json(job.recipe)
        f0_hz = median_pitch_hz(job.clip) if job.clip else None
        return KokoroVoice(styles=mixture(f0_hz, job.language)) if f0_hz else None

    def _preset(self, job: SpeechJob) -> KokoroVoice:
        """A voice of the stanza, at home in the language of the job."""
        voice = self.stored(self._voices, job.voice or next(iter(self._voices)))
        return voice.model_copy(update={"styles": at_home(voice.styles, job.language)})


def kokoro_synthesizer(kokoro: Kokoro, job: SpeechJob, voice: KokoroVoice) -> Synthesizer:
    """Speaks one job with Kokoro: a sound for each run of the network. Pauses are those of the signs in the text."""

    def speak(text: str, change: ProsodyChange) -> Sequence[Sound]:
        higher = 2 ** (change.pitch / STEPS_OF_AN_OCTAVE)
        speed = job.speed * change.rate / higher  # what is played faster is spoken slower before
        runs = kokoro.runs(text, job.language, voice, speed, job.owner)
        return [partial(_played, run, higher, change.volume) for run in runs]

    return Synthesizer(SAMPLE_RATE, speak)


def espeak_synthesizer(language: str, settings: VoiceSettings, speed: float) -> Synthesizer:
    """Speaks one job with espeak-ng. `language` is its own name for it; `speed` a factor of the voice's rate."""
    own = settings.manner(language, speed)

    def speak(text: str, change: ProsodyChange) -> Sequence[Sound]:
        manner = own._replace(
            rate=own.rate * change.rate,
            pitch=own.pitch + change.pitch,
            range=own.range + change.range,
            volume=own.volume * change.volume,
        )
        return [partial(library.speak, text, manner)]

    return Synthesizer(library.SAMPLE_RATE, speak)


def pico_synthesizer(job: SpeechJob) -> Synthesizer:
    """Speaks one job with Pico's voice of its language."""

    def speak(text: str, change: ProsodyChange) -> Sequence[Sound]:
        rate, higher = job.speed * change.rate, 2 ** (change.pitch / STEPS_OF_AN_OCTAVE)

        def sound() -> Samples:
            spoken = pico.speak(text, job.language, rate, higher) * change.volume
            return paused(spoken, pico.SAMPLE_RATE, text.rstrip()[-1:], rate)

        return [sound]

    return Synthesizer(pico.SAMPLE_RATE, speak)


def median_pitch_hz(clip: Clip) -> float | None:
    """Median pitch of the voice in a clip, None where there is no voice in it."""
    import numpy as np

    from audio.pitch import measure

    pitch = measure(np.frombuffer(clip.samples, "<i2"), clip.sample_rate)
    return pitch.f0_hz if pitch else None


def _played(sound: Sound, higher: float, volume: float) -> Samples:
    import soxr

    samples = sound()
    if higher != 1:
        samples = soxr.resample(samples, SAMPLE_RATE * higher, SAMPLE_RATE)
    return (samples * volume).clip(-1, 1)
