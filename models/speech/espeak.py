"""espeak-ng behind every engine of the embedded profile: small, quick, robotic, and in all their languages.

Each engine keeps its own voices, languages, marks and manners, which its stanza says. A voice is a variant of espeak
and a pitch; a clip is imitated in its pitch alone; a style is looked through for the words of STYLES.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import regex
from pydantic import Field

from contract.base import Frozen
from contract.catalog import SpeechModel
from contract.speech.engine import Clip, SpeechJob
from contract.speech.marks import Mark, pieces
from models.espeak import library
from models.espeak.library import SAMPLE_RATE, Manner
from models.espeak.voices import NAMES, VoiceSettings, language_of, settings_for
from models.options import read
from models.speech.adapter import SpeechAdapter, Spoken
from models.speech.text import sentences

if TYPE_CHECKING:
    import numpy as np

    Samples = np.ndarray[Any, np.dtype[np.float32]]

SENTENCE_CHARS = 300


class Options(Frozen):
    """Options of `Espeak`: settings of its voices by slug. The first is the engine's own."""

    voices: dict[str, VoiceSettings] = Field(min_length=1)


class Change(NamedTuple):
    """What a style or a span does to a manner: factors of rate and volume, steps of pitch and range."""

    rate: float = 1.0
    pitch: int = 0
    range: int = 0
    volume: float = 1.0


LIVELY = Change(rate=1.12, pitch=10, range=30)
HEAVY = Change(rate=0.85, pitch=-8, range=-30, volume=0.85)
STILL = Change(rate=0.92, range=-15, volume=0.75)
FIRM = Change(rate=1.05, range=20, volume=1.3)

STYLES = {
    "slow|langsam|lent": Change(rate=0.75),
    "fast|quick|hurried|rapid|schnell|eilig|rapide": Change(rate=1.3),
    "high|bright|hoch|hell": Change(pitch=15),
    "low|deep|dark|tief|dunkel": Change(pitch=-15),
    "loud|shout|laut": Change(volume=1.4),
    "quiet|soft|whisper|leise|sanft|flüster": Change(rate=0.95, range=-10, volume=0.5),
    "happy|cheerful|excited|enthusias|lively|joy|fröhlich|begeistert|lebhaft|joyeu": LIVELY,
    "sad|tired|depress|traurig|müde|triste": HEAVY,
    "calm|relaxed|gentle|ruhig|gelassen|calme": STILL,
    "angry|firm|strict|wütend|streng|energisch": FIRM,
    "monoton|flat|neutral|sachlich": Change(range=-40),
}
"""Beginnings of words that a style may contain, and what they change. All other words change nothing."""

SPANS = {
    "laughter": Change(rate=1.15, pitch=14, range=40),
    "strong": Change(rate=0.85, pitch=6, range=30, volume=1.35),
}


class Breath(NamedTuple):
    """Noise that swells and fades: `peak` is where in its time it is loudest, 0 to 1."""

    seconds: float
    loudness: float
    peak: float


BREATHS = {"breath": Breath(0.4, 0.05, 0.7), "sigh": Breath(0.9, 0.07, 0.2)}
LAUGHTER = ("ha ha ha", Change(rate=1.3, pitch=18, range=40))


class Espeak(SpeechAdapter):
    """Speaks for one engine of the catalogue."""

    options_type = Options

    def __init__(self, model: SpeechModel, path: Path | None) -> None:
        super().__init__(model, path)
        self._voices = read(model, Options).voices
        variants = library.variants()
        for slug, settings in self._voices.items():
            if settings.variant not in variants:
                raise ValueError(f"voice `{slug}` of `{model.id}`: espeak-ng has no variant `{settings.variant}`")
        self._marks = (*model.tags, *(f"<{name}>" for name in model.spans), *(f"</{name}>" for name in model.spans))
        if unknown := {Mark(tag).name for tag in model.tags} - {*BREATHS, "laughter"} | set(model.spans) - set(SPANS):
            raise ValueError(f"espeak-ng does not know mark `{min(unknown)}` of `{model.id}`")
        for language in model.languages:
            if not library.speaks(NAMES.get(language, language)):
                raise ValueError(f"espeak-ng does not speak `{language}`, which `{model.id}` names")

    def render(self, job: SpeechJob) -> Iterator[Spoken]:
        """A sentence at a time, so that texts of several callers take turns."""
        import numpy as np
        import soxr

        manner = self._manner(job)
        spans: list[str] = []
        for part in sentences(job.text, SENTENCE_CHARS, self._marks):
            said = list(pieces(part.text, self.model))
            last = max((at for at, piece in enumerate(said) if isinstance(piece, str) and piece.strip()), default=-1)
            sounds = [self._sound(piece, manner, spans, pause=at == last) for at, piece in enumerate(said)]
            sound = np.concatenate([*sounds, _silence(0.0 if sum(map(len, sounds)) else 0.1)])
            yield Spoken(soxr.resample(sound, SAMPLE_RATE, self.sample_rate).clip(-1, 1), part.end)

    def _sound(self, piece: str | Mark, manner: Manner, spans: list[str], *, pause: bool) -> Samples:
        """`spans` are those open so far; a mark of a span changes the list. `pause` at the end of a sentence."""
        if isinstance(piece, str):
            for name in spans:
                manner = changed(manner, SPANS[name])
            return library.speak(piece, manner, pause=pause)
        if piece.text in self.model.tags:
            return _tag(piece.name, manner)
        if not piece.closes:
            spans.append(piece.name)
        elif piece.name in spans:
            spans.remove(piece.name)
        return _silence(0.0)

    def _manner(self, job: SpeechJob) -> Manner:
        language = language_of(job.language)  # engines that follow the text may meet any
        settings = self._speaker(job, language)
        rate = settings.rate * job.speed
        manner = Manner(f"{language}+{settings.variant}", rate, settings.pitch, settings.range)
        words = regex.findall(r"\w+", (job.style or "").casefold())
        for beginnings, change in STYLES.items():
            if any(word.startswith(tuple(beginnings.split("|"))) for word in words):
                manner = changed(manner, change)
        return manner

    def _speaker(self, job: SpeechJob, language: str) -> VoiceSettings:
        if job.clip:
            return _imitated(job.clip, language) or next(iter(self._voices.values()))
        if job.voice is None:
            return next(iter(self._voices.values()))
        if job.voice not in self._voices:
            raise self.switched_off(job.voice)
        return self._voices[job.voice]


def changed(manner: Manner, change: Change) -> Manner:
    """`manner` with `change` on top."""
    return manner._replace(
        rate=manner.rate * change.rate,
        pitch=manner.pitch + change.pitch,
        range=manner.range + change.range,
        volume=manner.volume * change.volume,
    )


def _imitated(clip: Clip, language: str) -> VoiceSettings | None:
    """A voice as high as the clip's, or None where no voice is heard in it."""
    import numpy as np

    from audio.pitch import measure

    voice = measure(np.frombuffer(clip.samples, "<i2"), clip.sample_rate)
    return settings_for(voice.f0_hz, language) if voice else None


def _tag(name: str, manner: Manner) -> Samples:
    if name in BREATHS:
        return _noise(BREATHS[name])
    text, change = LAUGHTER
    return library.speak(text, changed(manner, change))


def _noise(breath: Breath) -> Samples:
    import numpy as np

    count = int(breath.seconds * SAMPLE_RATE)
    swell = np.interp(np.linspace(0, 1, count), (0, breath.peak, 1), (0, 1, 0)) ** 2
    hiss = np.convolve(np.random.default_rng().standard_normal(count + 3), np.ones(4) / 2, "valid")
    return (breath.loudness * swell * hiss).astype(np.float32)


def _silence(seconds: float) -> Samples:
    import numpy as np

    return np.zeros(int(seconds * SAMPLE_RATE), np.float32)
