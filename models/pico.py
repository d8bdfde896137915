"""SVOX Pico: a small synthesizer with one voice for each of five languages, clear and flat. Apache-2.0.

    speak("Guten Tag.", "de", rate=1.2)     its sound

Its library was not made for texts of clients: `<genfile file="...">` in one makes it write a file, and a word of
some hundred letters makes it run for ever. So it is given Latin letters, digits and a few signs, in words of a bounded
length, and nothing else. It also reads memory that it never wrote, where the package leaves what an earlier text left.
So its calls are made here, each text in zeroed memory of its own: no text affects another, several threads may speak,
and the same text is always the same sound.
"""

from __future__ import annotations

import ctypes
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_int16, c_void_p
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from audio.encoding import Samples

SAMPLE_RATE = 16_000

VOICES = {
    "de": ("de-DE_ta.bin", "de-DE_gl0_sg.bin"),
    "en": ("en-US_ta.bin", "en-US_lh0_sg.bin"),
    "es": ("es-ES_ta.bin", "es-ES_zl0_sg.bin"),
    "fr": ("fr-FR_ta.bin", "fr-FR_nk0_sg.bin"),
    "it": ("it-IT_ta.bin", "it-IT_cm0_sg.bin"),
}
"""ISO 639-1 to the two files of its voice: what reads the language, and what makes the sound."""

SLOWEST, FASTEST = 0.2, 5.0
LOWEST, HIGHEST = 0.5, 2.0

VOLUME = 0.4
"""As loud as Kokoro. At its own volume it is cut off."""

_MEMORY_BYTES, _BLOCK_BYTES, _NAME_BYTES = 2_500_000, 1024, 128
_DONE, _IDLE, _BUSY = 0, 200, 201
_NAME = b"voice"

_UNKNOWN = regex.compile(r"[^\p{Latin}0-9 .,;:!?'()%&€$§@/+*=#°-]|[^\P{Latin}\x00-\u024f]")
"""Characters that it does not read. Without `<` there is no markup."""

_SIGNS = str.maketrans("…’‘–", ".''-")
"""Signs that it does not know to those that it does."""

_REPEATED = regex.compile(r"([^\w\s])\1+")
"""Each sign is half a second of silence."""

_LONG_NUMBER = regex.compile(r"[0-9]{13,}")
"""Read digit by digit: it says nothing of a number that it has no name for."""

_LONG_WORD = regex.compile(r"[^ ]{25}(?=[^ ])")


def speak(text: str, language: str, rate: float = 1.0, higher: float = 1.0) -> Samples:
    """The sound of a text that nothing interprets: float32 mono [n] at SAMPLE_RATE, empty if it has nothing to speak.

    Args:
        text: any text, a few hundred characters at most.
        language: one of VOICES.
        rate: factor of its own speed; outside of its bounds the nearest is taken.
        higher: the same of its pitch.
    """
    import numpy as np

    levels = {"speed": min(max(SLOWEST, rate), FASTEST), "pitch": min(max(LOWEST, higher), HIGHEST), "volume": VOLUME}
    marks = "".join(f'<{name} level="{level * 100:.0f}">' for name, level in levels.items())
    with _engine(language) as engine:
        sound = _sound(engine, f"{marks}{readable(text)}\0".encode())
    return np.frombuffer(sound, "<i2").astype(np.float32) / np.float32(32_768)


def readable(text: str) -> str:
    """Returns the text for the library."""
    known = _UNKNOWN.sub(" ", unicodedata.normalize("NFKC", text.translate(_SIGNS)))
    digits = _LONG_NUMBER.sub(lambda number: " ".join(number[0]), _REPEATED.sub(r"\1", known))
    return str(_LONG_WORD.sub(r"\g<0> ", digits))


@contextmanager
def _engine(language: str) -> Iterator[c_void_p]:
    """A new one, that speaks one text."""
    import py_nanotts

    folder = Path(py_nanotts.__file__).with_name("lang")
    calls, memory = _library(), ctypes.create_string_buffer(_MEMORY_BYTES)
    system, engine, files = c_void_p(), c_void_p(), [c_void_p() for _ in VOICES[language]]
    _check(calls.pico_initialize(memory, _MEMORY_BYTES, byref(system)))
    try:
        _check(calls.pico_createVoiceDefinition(system, _NAME))
        for name, file in zip(VOICES[language], files, strict=True):
            own_name = ctypes.create_string_buffer(_NAME_BYTES)
            _check(calls.pico_loadResource(system, bytes(folder / name), byref(file)))
            _check(calls.pico_getResourceName(system, file, own_name))
            _check(calls.pico_addResourceToVoiceDefinition(system, _NAME, own_name))
        _check(calls.pico_newEngine(system, _NAME, byref(engine)))
        yield engine
    finally:
        calls.pico_disposeEngine(system, byref(engine))
        for file in files:
            calls.pico_unloadResource(system, byref(file))
        calls.pico_terminate(byref(system))


def _sound(engine: c_void_p, text: bytes) -> bytearray:
    """int16 samples. Between two steps other threads have their turn."""
    calls, block, count, kind = _library(), ctypes.create_string_buffer(_BLOCK_BYTES), c_int16(), c_int16()
    sound = bytearray()
    while text:
        _check(calls.pico_putTextUtf8(engine, text, len(text), byref(count)))
        if count.value <= 0:
            raise RuntimeError("Pico does not take the text")
        text = text[count.value :]
        status = _BUSY
        while status == _BUSY:
            status = calls.pico_getData(engine, block, _BLOCK_BYTES, byref(count), byref(kind))
            sound += ctypes.string_at(block, count.value)
        _check(status, _IDLE)
    return sound


def _check(status: int, expected: int = _DONE) -> None:
    if status != expected:
        raise RuntimeError(f"Pico could not speak: its status is {status}")


@cache
def _library() -> ctypes.PyDLL:
    """The shared object of the package. It keeps the interpreter for a step, which takes a few microseconds."""
    from py_nanotts import _nanotts

    return ctypes.PyDLL(_nanotts.__file__)
