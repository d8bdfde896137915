"""Voices that an engine has by imitating a recording: `options.voices` of its stanza, read once at start.

[id.serving.production.options.voices]
de-thorsten = { clip = "voices/de-thorsten.wav" }                    its words are in voices/de-thorsten.txt
rooom-f-01 = { clip = "voices/rooom-f-01.flac", transcript = "What is said in it." }
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import av

from contract.base import Frozen
from contract.limits import SPEECH_CLIP_S
from contract.speech.engine import Clip
from models.weights.files import WeightsError
from models.weights.store import home_folder

RATE = 24_000
"""Samples per second of every clip that is read here, and of the engines that imitate."""


class StoredVoice(Frozen):
    """One of them.

    Attributes:
        clip: a sound file, relative to `PARLANCE_HOME`, of at most 30 s.
        transcript: words that are said in it; None reads it from the file beside it that ends in `.txt`.
    """

    clip: str
    transcript: str | None = None


def read_clips(voices: Mapping[str, StoredVoice]) -> dict[str, Clip]:
    """The recordings of stored voices, by slug. Raises WeightsError."""
    home = home_folder()
    return {slug: read_clip(slug, voice, home) for slug, voice in voices.items()}


def read_clip(slug: str, voice: StoredVoice, home: Path) -> Clip:
    """The recording of a stored voice, at 24 kHz. Raises WeightsError if it is missing or cannot be used."""
    file = home / Path(voice.clip).expanduser()
    if not file.is_file():
        raise WeightsError(f"voice `{slug}` clones `{file}`, which does not exist; put the recording there")
    try:
        samples = _samples(file)
    except (av.FFmpegError, IndexError):
        raise WeightsError(f"`{file}` of voice `{slug}` is not a sound file") from None
    seconds = len(samples) / 2 / RATE
    if not 0 < seconds <= SPEECH_CLIP_S:
        raise WeightsError(f"`{file}` of voice `{slug}` lasts {seconds:.1f} s; at most {SPEECH_CLIP_S} s are allowed")
    return Clip(samples, RATE, voice.transcript or _words(slug, file.with_suffix(".txt")))


def _words(slug: str, file: Path) -> str:
    words = file.read_text("utf-8").strip() if file.is_file() else ""
    if not words:
        raise WeightsError(f"`{file}` must contain, word for word, what the recording of voice `{slug}` says")
    return words


def _samples(file: Path) -> bytes:
    """Mono, little-endian 16-bit PCM."""
    resampler = av.AudioResampler("s16", "mono", RATE)
    with av.open(str(file), "r") as container:
        frames: Iterator[Any] = container.decode(audio=0)
        return b"".join(
            sound.to_ndarray().tobytes() for frame in chain(frames, (None,)) for sound in resampler.resample(frame)
        )
