"""espeak-ng: small, quick, robotic, and in all languages of every engine that it may stand behind.

Each engine keeps its own voices, languages, marks and manners, which its stanza says. A voice is a variant of espeak
and a pitch; a clip is imitated in its pitch alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from contract.base import Frozen
from contract.catalog import SpeechModel
from contract.speech.engine import SpeechJob
from models.espeak import library
from models.espeak.voices import NAMES, VoiceSettings, language_of, settings_for
from models.imports import Imports
from models.options import read
from models.speech.clips import height_hz
from models.speech.espeak_mouth import EspeakMouth
from models.speech.manners import ManneredAdapter
from text.sentences import Part, sentences

SENTENCE_CHARS = 300


class Options(Frozen):
    """Options of `Espeak`: settings of its voices by slug. The first is the engine's own."""

    voices: dict[str, VoiceSettings] = Field(min_length=1)


class Espeak(ManneredAdapter):
    """Speaks for one engine of the catalogue."""

    options_type = Options
    libraries = Imports(("espeakng_loader", "regex"))

    def __init__(self, model: SpeechModel, path: Path | None) -> None:
        super().__init__(model, path)
        self._voices = read(model, Options).voices
        variants = library.variants()
        for slug, settings in self._voices.items():
            if settings.variant not in variants:
                raise ValueError(f"voice `{slug}` of `{model.id}`: espeak-ng has no variant `{settings.variant}`")
        for language in model.languages:
            if not library.speaks(NAMES.get(language, language)):
                raise ValueError(f"espeak-ng does not speak `{language}`, which `{model.id}` names")

    def cut(self, text: str) -> Iterator[Part]:
        return sentences(text, SENTENCE_CHARS)

    def mouth(self, job: SpeechJob) -> EspeakMouth:
        language = language_of(job.language)
        return EspeakMouth(language, self._settings(job, language), job.speed)

    def _settings(self, job: SpeechJob, language: str) -> VoiceSettings:
        own = next(iter(self._voices.values()))
        if job.clip:
            return settings_for(f0_hz, language) if (f0_hz := height_hz(job.clip)) else own
        if job.voice is None:
            return own
        if job.voice not in self._voices:
            raise self.switched_off(job.voice)
        return self._voices[job.voice]
