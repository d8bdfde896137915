"""Job, segments and protocol of a transcriber, and how pieces of speech are one text."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Protocol

import regex

from contract.limits import RECORDING_S

_CODES = """
af am ar as az ba be bg bn bo br bs ca cs cy da de el en es et eu fa fi fo fr gl gu ha haw he hi hr ht hu hy id is it
ja jw ka kk km kn ko la lb ln lo lt lv mg mi mk ml mn mr ms mt my ne nl nn no oc pa pl ps pt ro ru sa sd si sk sl sn so
sq sr su sv sw ta te tg th tk tl tr tt uk ur uz vi yi yo yue zh
"""

LANGUAGES = tuple(_CODES.split())

ALIASES = {"nb": "no", "jv": "jw", "fil": "tl", "iw": "he", "in": "id", "ji": "yi", "mo": "ro", "cmn": "zh"}
"""Other codes of the same languages, older and newer ones."""

DETECT = "auto"

_TAG = re.compile(r"([a-z]{2,3})([-_][a-z0-9]{1,8}){0,8}", re.ASCII | re.IGNORECASE)

SPACELESS = r"\p{Han}\p{Hiragana}\p{Katakana}\u30fc\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
"""Letters of scripts without spaces between words, as they stand inside brackets."""

_HAS_SPACELESS = regex.compile(rf"[{SPACELESS}]").search
_WORD = regex.compile(r"\s*\S+")


def named_language(code: str | None) -> str | None:
    """Returns the language that a request names, in the spelling of LANGUAGES; None to detect it.

    Regions are cut: `de-DE` is `de`. The code may be missing in LANGUAGES. Raises ValueError for a malformed code.
    """
    code = (code or "").strip()
    if not code or code.lower() == DETECT:
        return None
    tag = _TAG.fullmatch(code)
    if tag is None:
        raise ValueError("it is not a language code; send two letters such as `de`, or `de-DE`")
    language = tag[1].lower()
    return ALIASES.get(language, language)


@dataclass(frozen=True, slots=True)
class TranscriptionJob:
    """A recording to transcribe.

    Attributes:
        audio: the file itself, or a short-lived address from which the engine reads it (`file:`, `https:`).
        language: code from `contract.transcription.engine`; None to detect it.
        prompt: text that counts as said before the recording: a hint at spelling and style.
        terms: proper nouns and technical terms that may occur, without spaces.
        words: whether to time every word; an engine that cannot returns segments without words.
        max_seconds: length beyond which the recording is refused before transcription.
        owner: organisation that the work is for; owners take turns.
    """

    audio: bytes | str
    language: str | None = None
    prompt: str | None = None
    terms: tuple[str, ...] = ()
    words: bool = False
    max_seconds: float = RECORDING_S
    owner: str = ""


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word, with its start and end in seconds of the recording."""

    text: str
    start: float
    end: float
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A passage: a sentence or so.

    Attributes:
        text: text without surrounding spaces.
        start, end: seconds of the recording; never beyond its end.
        words: words of the passage, if requested.
        seek: start of the window that contained it, in hundredths of a second.
        tokens, temperature, avg_logprob, compression_ratio, no_speech_prob: figures of engines that have them.
    """

    text: str
    start: float
    end: float
    words: tuple[TimedWord, ...] = ()
    seek: int = 0
    tokens: tuple[int, ...] = ()
    temperature: float | None = None
    avg_logprob: float | None = None
    compression_ratio: float | None = None
    no_speech_prob: float | None = None


@dataclass(frozen=True, slots=True)
class TranscriptUpdate:
    """Transcript of a recording since the last update.

    The first update comes after decoding, before any transcription, and contains the duration.

    Attributes:
        duration_s: seconds of the whole recording.
        done_s: seconds of the recording, from its start, that are transcribed.
        language: language of the job, else the detected one; None until it is detected.
        segments: new segments in order of time.
    """

    duration_s: float
    done_s: float = 0.0
    language: str | None = None
    segments: tuple[Segment, ...] = ()


class TranscriptionEngine(Protocol):
    """A transcriber: an adapter in `models.transcription`, or its replica. The gate calls its methods by name."""

    def transcribe(self, job: TranscriptionJob) -> AsyncGenerator[TranscriptUpdate, None]:
        """Yields the transcript as it grows; leaving the iteration frees the engine.

        Raises AUDIO_UNREADABLE, AUDIO_TOO_LONG, and BUSY if too many files wait to be decoded.
        """


def continuation(before: str, after: str) -> str:
    """Returns `after` as it follows `before`: with a space, unless a letter beside the join is of SPACELESS.

    "Good" and "day" are "Good day"; "你好。" and "再见" are "你好。再见".
    """
    edges = "".join(next(filter(str.isalnum, text), "") for text in (reversed(before), after))
    return after if not before or not after or _HAS_SPACELESS(edges) else f" {after}"


def joined(pieces: Iterable[str]) -> str:
    """Returns the text of all `pieces`."""
    texts = list(filter(None, pieces))
    return "".join(map(continuation, ["", *texts], texts))


def words(text: str) -> list[str]:
    """Returns the words of `text`, each with the white space before it; without spaces, all of it is one."""
    return list[str](_WORD.findall(text))
