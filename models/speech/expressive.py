"""Tags and styles for synthesizers that know neither.

A subclass of `ExpressiveAdapter` gives a `Synthesizer` for a job. A tag that it cannot perform must not take a sentence
apart: where a tag stands between two words it becomes a comma, which is a breath, and a span is spoken as it stands. A
style is looked through for the words of STYLES.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, NamedTuple

import regex

from contract.catalog import SpeechModel
from contract.speech.engine import SpeechJob
from contract.speech.tags import tags_of
from models.speech.adapter import SpeechAdapter, Spoken
from text.sentences import TextPart, any_of

if TYPE_CHECKING:
    from audio.encoding import Samples

Sound = Callable[[], "Samples"]
"""Computes a piece of sound when it is called: float32 mono [n]."""


class ProsodyChange(NamedTuple):
    """Effect of a style: factors of rate and volume, steps of pitch and range (of 0 to 99)."""

    rate: float = 1.0
    pitch: int = 0
    range: int = 0
    volume: float = 1.0

    def then(self, other: ProsodyChange) -> ProsodyChange:
        return ProsodyChange(
            self.rate * other.rate, self.pitch + other.pitch, self.range + other.range, self.volume * other.volume
        )


LIVELY = ProsodyChange(rate=1.12, pitch=10, range=30)
HEAVY = ProsodyChange(rate=0.85, pitch=-8, range=-30, volume=0.85)
STILL = ProsodyChange(rate=0.92, range=-15, volume=0.75)
FIRM = ProsodyChange(rate=1.05, range=20, volume=1.3)

STYLES = {
    "slow|langsam|lent": ProsodyChange(rate=0.75),
    "fast|quick|hurried|rapid|schnell|eilig|rapide": ProsodyChange(rate=1.3),
    "high|bright|hoch|hell": ProsodyChange(pitch=15),
    "low|deep|dark|tief|dunkel": ProsodyChange(pitch=-15),
    "loud|shout|laut": ProsodyChange(volume=1.4),
    "quiet|soft|whisper|leise|sanft|flüster": ProsodyChange(rate=0.95, range=-10, volume=0.5),
    "happy|cheerful|excited|enthusias|lively|joy|fröhlich|begeistert|lebhaft|joyeu": LIVELY,
    "sad|tired|depress|traurig|müde|triste": HEAVY,
    "calm|relaxed|gentle|ruhig|gelassen|calme": STILL,
    "angry|firm|strict|wütend|streng|energisch": FIRM,
    "monoton|flat|neutral|sachlich": ProsodyChange(range=-40),
}
"""Beginnings of words that a style may contain, and what they change. All other words change nothing."""

BREATH = ", "
"""In place of a tag between two words: a quarter of a second at most."""
SILENCE_S = 0.1
"""Seconds of silence where a part of a text has nothing to speak."""


class Synthesizer(NamedTuple):
    """A language and a voice of an engine, for one job.

    Attributes:
        sample_rate: in Hz.
        speak: a sentence or less, in as many sounds as it takes turns.
    """

    sample_rate: int
    speak: Callable[[str, ProsodyChange], Sequence[Sound]]


class ExpressiveAdapter(SpeechAdapter):
    """Speaks with the synthesizer that its subclass gives."""

    @abstractmethod
    def synthesizer(self, job: SpeechJob) -> Synthesizer:
        """The synthesizer of a job. Raises UNKNOWN_VOICE."""

    @abstractmethod
    def cut(self, text: str) -> Iterator[TextPart]:
        """A text without marks in sentences or shorter."""

    def render(self, job: SpeechJob) -> Iterator[Spoken]:
        """A sentence or less at a time, so that texts of several callers take turns."""
        import soxr

        synthesizer, change = self.synthesizer(job), styled(job.style)
        text, ends = unmarked(job.text, self.model)
        spoken = 0
        for part in self.cut(text):
            samples = 0
            sounds = synthesizer.speak(part.text, change) or [partial(silence, 0.0, synthesizer.sample_rate)]
            for number, sound in enumerate(sounds, 1):
                resampled = soxr.resample(sound(), synthesizer.sample_rate, self.sample_rate).clip(-1, 1)
                samples += len(resampled)
                if number == len(sounds):
                    resampled = resampled if samples else silence(SILENCE_S, self.sample_rate)
                    spoken = ends[part.end - 1]
                yield Spoken(resampled, spoken)


def unmarked(text: str, model: SpeechModel) -> tuple[str, list[int]]:
    """`text` without tags, and for each character of that how many of `text` end with it."""
    spoken, ends, start = "", [], 0
    for run in regex.finditer(rf"(?<!\s)\s*+(?:(?:{any_of(tags_of(model))})\s*+)++", text):
        instead = _instead(text, run, any(tag in run[0] for tag in model.tags))
        spoken += text[start : run.start()] + instead
        ends += [*range(start + 1, run.start() + 1), *[run.end()] * len(instead)]
        ends[-1:] = [run.end()] if ends else []
        start = run.end()
    return spoken + text[start:], [*ends, *range(start + 1, len(text) + 1)]


def _instead(text: str, run: regex.Match[str], breathes: bool) -> str:
    """Returns the text that replaces `run`, marks and the white space around them: a breath at most."""
    start, end = run.span()
    space = "".join(regex.findall(r"\s", run[0]))
    if "\n" in space:
        return space
    if breathes and text[start - 1 : start].isalnum() and text[end : end + 1].isalnum():
        return BREATH
    return " " if space or breathes else ""


def styled(style: str | None) -> ProsodyChange:
    """Returns the effect of all words of a style."""
    words = regex.findall(r"\w+", (style or "").casefold())
    changes = [
        change
        for beginnings, change in STYLES.items()
        if any(word.startswith(tuple(beginnings.split("|"))) for word in words)
    ]
    return reduce(ProsodyChange.then, changes, ProsodyChange())


def silence(seconds: float, sample_rate: int) -> Samples:
    """float32 [n]."""
    import numpy as np

    return np.zeros(int(seconds * sample_rate), np.float32)
