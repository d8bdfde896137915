"""espeak-ng, called in its own process's memory: one text, one voice, one sound at a time.

    speak("Hello.", Manner("en-us+f2"))     its sound
    clauses("Dr. No, hello.", "en-us")      its phonemes: [Clause("dˈɑːktɚ", "Dr."), Clause("nˈo^ʊ", "No,"), ...]

The library holds one voice and one set of parameters for the whole process and is not safe between threads, so every
call sets all of them under one lock. It is loaded at the first call and never at import: a process that forks
afterwards would hand a half-working copy to its child.
"""

from __future__ import annotations

import ctypes
import unicodedata
from functools import cache, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import regex

from contract.transcription.engine import SPACELESS

if TYPE_CHECKING:
    from audio.encoding import Samples

SAMPLE_RATE = 22_050
NORMAL_WPM, SLOWEST_WPM, FASTEST_WPM = 175, 80, 450

_SYNCHRONOUS, _DO_NOT_EXIT = 2, 0x8000
_UTF8, _PAUSE_AT_END = 0x1, 0x1000
_RATE, _VOLUME, _PITCH, _RANGE = 1, 2, 3, 4
_LONGEST_S_PER_CHAR, _LONGEST_S = 1.0, 2.0
"""Bound of a sound. Letters that a voice cannot read are spelt by their description, which takes about as long."""

_NEVER_SPOKEN = ("Cc", "Cs", "Co", "Cn")
"""Categories that become spaces: espeak takes commands from control characters and uses unassigned ones itself."""

_LONG_NUMBER = regex.compile(r"\p{Nd}{16,}")
"""Read digit by digit, in fours: espeak leaves out what is beyond the largest number that it has a name for."""

_ENDLESS = regex.compile(
    rf"(?:(?:[{SPACELESS}\p{{Hangul}}\p{{N}}]\p{{M}}*+){{25}}|(?:[\p{{L}}\p{{N}}]\p{{M}}*+){{50}})(?=[\p{{L}}\p{{N}}])"
)
"""espeak leaves out what is beyond 200 phonemes of one word: fewer signs where each is a syllable."""

_IPA, _TIED, _TIE_SHIFT = 0x02, 0x80, 8
TIE = "^"
"""Joins the letters of one phoneme in `Clause.phonemes`."""

_LOCK = Lock()


class Manner(NamedTuple):
    """Settings for a text.

    Attributes:
        voice: language and variant, e.g. `de+f2`.
        rate: 1 is 175 words a minute.
        pitch, range: 0 to 99; how high, and how lively, 50 being the voice's own.
        volume: 0 to 200.
    """

    voice: str
    rate: float = 1.0
    pitch: float = 50
    range: float = 50
    volume: float = 100


class Clause(NamedTuple):
    """A part of a text that espeak reads at once: its phonemes in IPA, and its text with the sign that ends it."""

    phonemes: str
    text: str


def speak(text: str, manner: Manner) -> Samples:
    """The sound of a text that nothing interprets: float32 mono [n] at SAMPLE_RATE, empty if it has nothing to speak.

    Args:
        text: any text, a few hundred characters at most so that other threads get their turn.
        manner: numbers outside their bounds are moved to the nearest.

    Raises:
        ValueError: espeak-ng has no such language.
    """
    import numpy as np

    readable = _readable(text)
    rate = _between(SLOWEST_WPM, NORMAL_WPM * manner.rate, FASTEST_WPM)
    longest_s = (_LONGEST_S_PER_CHAR * len(text) + _LONGEST_S) * NORMAL_WPM / rate
    with _LOCK:
        library = _library()
        library.allow(longest_s)
        library.set_voice(manner.voice)
        for parameter, value in (
            (_RATE, rate),
            (_VOLUME, _between(0, manner.volume, 200)),
            (_PITCH, _between(0, manner.pitch, 99)),
            (_RANGE, _between(0, manner.range, 99)),
        ):
            library.calls.espeak_SetParameter(parameter, value, 0)
        sound = library.synthesise(readable, _UTF8 | _PAUSE_AT_END)
    return np.frombuffer(sound, "<i2").astype(np.float32) / np.float32(32_768)


def clauses(text: str, voice: str) -> list[Clause]:
    """The phonemes of a text of a few hundred characters. Raises ValueError where espeak-ng has no such voice.

    Numbers, signs and abbreviations are read out; letters of one phoneme are joined with TIE. A word that espeak reads
    in another language is between that language's marks, e.g. `(en)`.
    """
    with _LOCK:
        library = _library()
        library.set_voice(voice)
        return library.clauses(_readable(text))


@lru_cache(256)
def speaks(language: str) -> bool:
    """Says if espeak-ng has a voice for a language, by its own name for it, e.g. `cmn`."""
    with _LOCK:
        try:
            _library().set_voice(language)
        except ValueError:
            return False
    return True


def _readable(text: str) -> bytes:
    plain = "".join(" " if unicodedata.category(char) in _NEVER_SPOKEN else char for char in text)
    in_fours = _LONG_NUMBER.sub(lambda number: ", ".join(map(" ".join, regex.findall(".{1,4}", number[0]))), plain)
    return str(_ENDLESS.sub(r"\g<0> ", in_fours)).encode()


def _between(low: float, value: float, high: float) -> int:
    return round(min(max(low, value), high))


class _Library:
    """The shared object and the buffer that its callback fills. It is used under _LOCK only."""

    def __init__(self) -> None:
        import espeakng_loader

        self.calls = ctypes.CDLL(espeakng_loader.get_library_path())
        self.calls.espeak_Synth.argtypes = [
            ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int, ctypes.c_uint, ctypes.c_uint,
            ctypes.c_void_p, ctypes.c_void_p,
        ]  # fmt: skip
        self.calls.espeak_TextToPhonemes.restype = ctypes.c_char_p
        self.calls.espeak_TextToPhonemes.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_int]
        data = espeakng_loader.get_data_path().encode()
        if (rate := self.calls.espeak_Initialize(_SYNCHRONOUS, 200, data, _DO_NOT_EXIT)) != SAMPLE_RATE:
            raise RuntimeError(f"espeak-ng did not start, or its sample rate of {rate} Hz is not supported")
        self._sound = bytearray()
        self._limit_bytes = 0
        self._voice = ""
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
        self._callback = kind(self._collect)  # kept, or it would be freed while espeak holds its address
        self.calls.espeak_SetSynthCallback(self._callback)

    def _collect(self, samples: int | None, count: int, _events: int | None) -> int:
        """Called by espeak with int16 samples. 1 stops it."""
        if samples and count > 0:
            self._sound += ctypes.string_at(samples, 2 * count)
        return int(len(self._sound) > self._limit_bytes)

    def allow(self, seconds: float) -> None:
        """Bounds the sound of the next call."""
        self._limit_bytes = 2 * int(seconds * SAMPLE_RATE)

    def set_voice(self, name: str) -> None:
        """Raises ValueError for an unknown one."""
        if name == self._voice:
            return
        self._voice = ""
        if self.calls.espeak_SetVoiceByName(name.encode()):
            raise ValueError(f"espeak-ng has no voice `{name}`")
        self._voice = name

    def synthesise(self, text: bytes, flags: int) -> bytes:
        """int16 samples; espeak reads the text up to its zero byte."""
        self._sound.clear()
        if self.calls.espeak_Synth(text, len(text) + 1, 0, 1, 0, flags, None, None):
            raise RuntimeError("espeak-ng could not speak")
        return bytes(self._sound)

    def clauses(self, text: bytes) -> list[Clause]:
        """See the function `clauses`. espeak moves a pointer through the text, one character past each clause."""
        buffer = ctypes.create_string_buffer(text)  # with the zero byte that ends it
        start, place = ctypes.addressof(buffer), ctypes.c_void_p(ctypes.addressof(buffer))
        clauses: list[Clause] = []
        begin = end = 0
        while place.value is not None and end < len(text):
            phonemes = self.calls.espeak_TextToPhonemes(
                ctypes.byref(place), _UTF8, _IPA | _TIED | ord(TIE) << _TIE_SHIFT
            )
            end = len(text) if place.value is None else max(place.value - start, end + 1)
            passage = text[begin:end].decode(errors="ignore")
            clause = passage if place.value is None else passage[:-1]
            clauses.append(Clause((phonemes or b"").decode(), clause.strip()))
            begin += len(clause.encode())
        return clauses


@cache
def _library() -> _Library:
    return _Library()
