"""What a transcriber is asked and what it gives back: the job and the protocol of transcription."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

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


def named_language(code: str | None) -> str | None:
    """The language that a request names, in the spelling of LANGUAGES; None where it is to be detected.

    Regions are cut: `de-DE` is `de`. The code need be none of LANGUAGES. Raises ValueError for what is no code.
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
    """A recording to write down.

    Attributes:
        audio: the file itself, or a short-lived address from which the engine reads it (`file:`, `https:`).
        language: a code of `contract.transcription.engine`; None where the engine is to find out.
        prompt: text as if it had been said before: a hint at spelling and style.
        terms: proper nouns and technical terms that may occur, without spaces.
        words: whether the time of every word is wanted; an engine that knows none gives segments without.
        max_seconds: a longer recording is refused before any of it is heard.
        owner: for whom; owners take turns.
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
    """A word, with the times of its beginning and end in seconds of the recording."""

    text: str
    start: float
    end: float
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A passage: a sentence or so.

    Attributes:
        text: without spaces around it.
        start, end: in seconds of the recording; never beyond its end.
        words: its words, where they were asked for.
        seek: where the window began in which it was heard, in hundredths of a second.
        tokens, temperature, avg_logprob, compression_ratio, no_speech_prob: of engines that have such figures.
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
    """What came of a recording since the last part.

    The first part comes as soon as the file is decoded, before any of it is heard: it says how long it is.

    Attributes:
        duration_s: of the whole recording.
        done_s: of the recording, from its beginning, that has been heard.
        language: that of the job, else the one that was detected; None while nobody knows.
        segments: in order of time.
    """

    duration_s: float
    done_s: float = 0.0
    language: str | None = None
    segments: tuple[Segment, ...] = ()


class TranscriptionEngine(Protocol):
    """A transcriber, wherever it runs: an adapter in `models.transcription`, its replica, or the gate before it."""

    def transcribe(self, job: TranscriptionJob) -> AsyncGenerator[TranscriptUpdate, None]:
        """What is said, as it is heard; leaving the iteration frees the engine.

        Raises AUDIO_UNREADABLE, AUDIO_TOO_LONG, and BUSY where too many files wait to be decoded.
        """
        ...
