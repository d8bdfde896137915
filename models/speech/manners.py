"""What synthesisers without manners of their own do with marks and styles.

A subclass of `ManneredAdapter` gives a `Mouth` for a job. A mark that the mouth cannot perform must not take a sentence
apart: where a tag stands between two words it becomes a comma, which is a breath, and a span is spoken as it stands. A
style is looked through for the words of STYLES.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import regex

from contract.catalog import SpeechModel
from contract.speech.engine import SpeechJob
from contract.speech.marks import marks_of
from models.speech.adapter import SpeechAdapter, Spoken
from text.sentences import Part, any_of

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

BREATH = ", "
"""In place of a tag between two words: a quarter of a second at most."""
NOTHING_S = 0.1
"""Of silence, where a part of a text has nothing to speak."""


class Mouth(Protocol):
    """What speaks one job: a language and a voice of a synthesiser. `sample_rate` is in Hz."""

    sample_rate: int

    def speak(self, text: str, change: Change) -> Sequence[Sound]:
        """A sentence or less, in as many sounds as it takes turns."""
        ...


class ManneredAdapter(SpeechAdapter):
    """Speaks by the mouth that its subclass gives."""

    @abstractmethod
    def mouth(self, job: SpeechJob) -> Mouth:
        """What speaks a job. Raises UNKNOWN_VOICE."""

    @abstractmethod
    def cut(self, text: str) -> Iterator[Part]:
        """A text without marks in sentences or shorter."""

    def render(self, job: SpeechJob) -> Iterator[Spoken]:
        """A sentence or less at a time, so that texts of several callers take turns."""
        import soxr

        mouth, change = self.mouth(job), styled(job.style)
        text, ends = unmarked(job.text, self.model)
        spoken = 0
        for part in self.cut(text):
            samples = 0
            sounds = mouth.speak(part.text, change) or [partial(silence, 0.0, mouth.sample_rate)]
            for number, sound in enumerate(sounds, 1):
                made = soxr.resample(sound(), mouth.sample_rate, self.sample_rate).clip(-1, 1)
                samples += len(made)
                if number == len(sounds):
                    made, spoken = made if samples else silence(NOTHING_S, self.sample_rate), ends[part.end - 1]
                yield Spoken(made, spoken)


def unmarked(text: str, model: SpeechModel) -> tuple[str, list[int]]:
    """`text` without marks, and for each character of that how many of `text` end with it."""
    said, ends, start = "", [], 0
    for run in regex.finditer(rf"(?<!\s)\s*+(?:(?:{any_of(marks_of(model))})\s*+)++", text):
        instead = _instead(text, run, any(tag in run[0] for tag in model.tags))
        said += text[start : run.start()] + instead
        ends += [*range(start + 1, run.start() + 1), *[run.end()] * len(instead)]
        ends[-1:] = [run.end()] if ends else []
        start = run.end()
    return said + text[start:], [*ends, *range(start + 1, len(text) + 1)]


def _instead(text: str, run: regex.Match[str], breathes: bool) -> str:
    """What is read in place of `run`, marks and the white space around them: a breath at most."""
    start, end = run.span()
    space = "".join(regex.findall(r"\s", run[0]))
    if "\n" in space:
        return space
    if breathes and text[start - 1 : start].isalnum() and text[end : end + 1].isalnum():
        return BREATH
    return " " if space or breathes else ""


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
