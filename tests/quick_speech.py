"""The embedded speech engines with a synthesizer that takes milliseconds, for tests that need no real voice."""

from collections.abc import Iterator
from pathlib import Path

from contract.base import Frozen
from contract.catalog import SpeechModel
from contract.speech.engine import SpeechJob
from models import Imports
from models.espeak.voices import VoiceSettings, language_of, settings_for
from models.options import read
from models.speech.expressive import ExpressiveAdapter, Synthesizer
from models.speech.kokoro import espeak_synthesizer, median_pitch_hz
from text.sentences import TextPart, sentences

SENTENCE_CHARS = 300


class EspeakOptions(Frozen):
    """Settings of the voices by slug; the first is the engine's own."""

    voices: dict[str, VoiceSettings]


class Espeak(ExpressiveAdapter):
    """Speaks all languages of one engine of the catalogue with espeak-ng."""

    options_type = EspeakOptions
    libraries = Imports(("espeakng_loader", "regex"))

    def __init__(self, model: SpeechModel, path: Path | None) -> None:
        super().__init__(model, path)
        self._voices = read(model, EspeakOptions).voices

    def cut(self, text: str) -> Iterator[TextPart]:
        return sentences(text, SENTENCE_CHARS)

    def synthesizer(self, job: SpeechJob) -> Synthesizer:
        language = language_of(job.language)
        settings = self.stored(self._voices, job.voice or next(iter(self._voices)))
        f0_hz = median_pitch_hz(job.clip) if job.clip else None
        return espeak_synthesizer(language, settings_for(f0_hz, language) if f0_hz else settings, job.speed)


def quick(model: SpeechModel) -> SpeechModel:
    """`model` with the tags, styles and voices of its stanza, but espeak-ng speaks all of its languages."""
    assert model.serving
    assert model.serving.fallback
    change = {
        "adapter": "tests.quick_speech:Espeak",
        "runtime": model.serving.fallback.runtime,
        "license": model.serving.fallback.license,
        "languages": (),
        "fallback": None,
        "by_default": None,
        "weights": None,
        "options": {"voices": {slug: voice["espeak"] for slug, voice in model.serving.options["voices"].items()}},
    }
    return model.model_copy(update={"serving": model.serving.model_copy(update=change)})
