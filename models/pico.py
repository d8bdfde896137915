"""SVOX Pico: a small synthesizer with one voice for each of five languages, clear and flat. Apache-2.0.

    speak("Guten Tag.", "de", rate=1.2)     its sound

Its library was not made for the texts of strangers: `<genfile file="...">` in one makes it write a file, a word of some
hundred letters makes it run for ever, and it holds the interpreter meanwhile, so that no other thread could stop it. So
it is given Latin letters, digits and a few signs, in words of a bounded length, and nothing else. Each call sets it up
anew and hears of no other; that it holds the interpreter is also what makes it safe between threads.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Any

import regex

if TYPE_CHECKING:
    from audio.encoding import Samples

SAMPLE_RATE = 16_000

VOICES = {"de": "de-DE", "en": "en-US", "es": "es-ES", "fr": "fr-FR", "it": "it-IT"}
"""ISO 639-1 to its voice."""

SLOWEST, FASTEST = 0.2, 5.0
LOWEST, HIGHEST = 0.5, 2.0

VOLUME = 0.4
"""As loud as Kokoro. At its own volume it is cut off."""

_UNKNOWN = regex.compile(r"[^\p{Latin}0-9 .,;:!?'()%&€$§@/+*=#°-]|[^\P{Latin}\x00-\u024f]")
"""What it does not read. Without `<` there is no markup."""

_REPEATED = regex.compile(r"([^\w\s])\1+")
"""Each sign is half a second of silence."""

_LONG_NUMBER = regex.compile(r"[0-9]{13,}")
"""Read digit by digit: it says nothing of a number that it has no name for."""

_LONG_WORD = regex.compile(r"[^ ]{25}(?=[^ ])")


def speak(text: str, language: str, rate: float = 1.0, higher: float = 1.0) -> Samples:
    """The sound of a text that nothing interprets: float32 mono [n] at SAMPLE_RATE, empty if it has nothing to speak.

    Args:
        text: any text, a few hundred characters at most: other threads stand still for a hundredth of its sound.
        language: one of VOICES.
        rate: factor of its own speed; outside of its bounds the nearest is taken.
        higher: the same of its pitch.
    """
    import numpy as np

    sound = _library().speak(
        readable(text),
        voice=VOICES[language],
        speed=min(max(SLOWEST, rate), FASTEST),
        pitch=min(max(LOWEST, higher), HIGHEST),
        volume=VOLUME,
    )
    return np.frombuffer(sound, "<i2").astype(np.float32) / np.float32(32_768)


def readable(text: str) -> str:
    """What the library is given of a text."""
    known = _UNKNOWN.sub(" ", unicodedata.normalize("NFKC", text.replace("…", ".")))
    digits = _LONG_NUMBER.sub(lambda number: " ".join(number[0]), _REPEATED.sub(r"\1", known))
    words: str = _LONG_WORD.sub(r"\g<0> ", digits)
    return words


@cache
def _library() -> Any:
    from py_nanotts import NanoTTS

    return NanoTTS()
