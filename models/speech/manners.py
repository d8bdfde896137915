"""What synthesisers without manners of their own do with marks and styles: a text is cut there, and each piece spoken.

A subclass of `ManneredAdapter` gives a `Mouth` for a job. Marks become noise, laughter, or a change of how the text
between them is spoken; a style is looked through for the words of STYLES.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import regex

from contract.catalog import SpeechModel
from contract.speech.engine import SpeechJob
from contract.speech.marks import Mark, pieces
from models.speech.adapter import SpeechAdapter, Spoken
from models.speech.text import Part

if TYPE_CHECKING:
    import numpy as np

    Samples = np.ndarray[Any, np.dtype[np.float32]]

Sound = Callable[[], "Samples"]
"""Computes a piece of sound when it is called: float32 mono [n]."""


class Change(NamedTuple):
    """What a style or a span does to a manner: factors of rate and volume, steps of pitch and range (of 0 to 99)."""

    rate: float = 1.0
    pitch: int = 0
    range: int = 0
    volume: float = 1.0

    def then(self, other: Change) -> Change:
        """Both."""
        return Change(
            self.rate * other.rate, self.pitch + other.pitch, self.range + other.range, self.volume * other.volume
        )


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
NOTHING_S = 0.1
"""Of silence, where a part of a text has nothing to speak."""

LAUGHTER = ("ha ha ha", Change(rate=1.3, pitch=18, range=40))


class Mouth(Protocol):
    """What speaks one job: a language and a voice of a synthesiser. `sample_rate` is in Hz."""

    sample_rate: int

    def speak(self, text: str, change: Change, *, pause: bool) -> Sequence[Sound]:
        """A piece of a sentence, in as many sounds as it takes turns. `pause` where it ends the sentence."""
        ...


class ManneredAdapter(SpeechAdapter):
    """Speaks by the mouth that its subclass gives. Raises ValueError for a stanza whose marks nobody here knows."""

    def __init__(self, model: SpeechModel, path: Path | None) -> None:
        super().__init__(model, path)
        self.marks = (*model.tags, *(f"<{name}>" for name in model.spans), *(f"</{name}>" for name in model.spans))
        if unknown := {Mark(tag).name for tag in model.tags} - {*BREATHS, "laughter"} | set(model.spans) - set(SPANS):
            raise ValueError(f"nothing here knows mark `{min(unknown)}` of `{model.id}`")

    @abstractmethod
    def mouth(self, job: SpeechJob) -> Mouth:
        """What speaks a job. Raises UNKNOWN_VOICE."""

    @abstractmethod
    def cut(self, job: SpeechJob) -> Iterator[Part]:
        """The text in sentences or shorter."""

    def render(self, job: SpeechJob) -> Iterator[Spoken]:
        """A sentence or less at a time, so that texts of several callers take turns."""
        import soxr

        mouth, change = self.mouth(job), styled(job.style)
        spans: list[str] = []
        spoken = 0
        for part in self.cut(job):
            samples = 0
            sounds = self._sounds(part, mouth, change, spans)
            for number, sound in enumerate(sounds, 1):
                made = soxr.resample(sound(), mouth.sample_rate, self.sample_rate).clip(-1, 1)
                samples += len(made)
                if number == len(sounds):
                    made, spoken = made if samples else silence(NOTHING_S, self.sample_rate), part.end
                yield Spoken(made, spoken)

    def _sounds(self, part: Part, mouth: Mouth, change: Change, spans: list[str]) -> list[Sound]:
        """At least one. `spans` are those open so far; a mark of a span changes the list."""
        said = list(pieces(part.text, self.model))
        last = max((at for at, piece in enumerate(said) if isinstance(piece, str) and piece.strip()), default=-1)
        sounds: list[Sound] = []
        for at, piece in enumerate(said):
            if isinstance(piece, str):
                within = reduce(Change.then, (SPANS[name] for name in spans), change)
                sounds += mouth.speak(piece, within, pause=at == last)
            elif piece.text in self.model.tags:
                sounds += _tag(piece.name, mouth, change)
            elif not piece.closes:
                spans.append(piece.name)
            elif piece.name in spans:
                spans.remove(piece.name)
        return sounds or [partial(silence, 0.0, mouth.sample_rate)]


def styled(style: str | None) -> Change:
    """What the words of a style change together."""
    words = regex.findall(r"\w+", (style or "").casefold())
    changes = [
        change
        for beginnings, change in STYLES.items()
        if any(word.startswith(tuple(beginnings.split("|"))) for word in words)
    ]
    return reduce(Change.then, changes, Change())


def silence(seconds: float, sample_rate: int) -> Samples:
    """float32 [n]."""
    import numpy as np

    return np.zeros(int(seconds * sample_rate), np.float32)


def _tag(name: str, mouth: Mouth, change: Change) -> Sequence[Sound]:
    if name in BREATHS:
        return [partial(_noise, BREATHS[name], mouth.sample_rate)]
    text, laughing = LAUGHTER
    return mouth.speak(text, change.then(laughing), pause=True)


def _noise(breath: Breath, sample_rate: int) -> Samples:
    import numpy as np

    count = int(breath.seconds * sample_rate)
    swell = np.interp(np.linspace(0, 1, count), (0, breath.peak, 1), (0, 1, 0)) ** 2
    hiss = np.convolve(np.random.default_rng().standard_normal(count + 3), np.ones(4) / 2, "valid")
    return (breath.loudness * swell * hiss).astype(np.float32)
