"""An hour of conversation of which every word and its time are known: what live ears are judged by.

Sentences of `examples/spoken.toml` are spoken by the embedded engine in its voices, some by espeak-ng, and laid on one
track of PCM16 with silence between them. Some turns begin before the last one has ended; the room is quiet, or hums
and hisses at 20 or 10 dB below the speech, minute by minute. The same seed gives the same track.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import wave
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import configs
import models
from audio.sandbox import TooLong, decode
from benchmarks.quality import transcription
from benchmarks.quality.spoken import SENTENCES, SPEECH, VOICES
from contract.speech import engine
from contract.speech.engine import SpeechJob
from deployments.ingress.verifier import wav
from models.espeak import library
from models.espeak.voices import VoiceSettings, language_of

if TYPE_CHECKING:
    import numpy as np

    Samples = np.ndarray[Any, np.dtype[np.float32]]

T = TypeVar("T")
SAMPLE_RATE = 24_000
HOUR_S = 3600.0
ESPEAK = "espeak-ng"
ESPEAK_EVERY = 6
"""One sentence of so many is spoken by espeak-ng, in languages that the ears understand of it."""
UNDERSTOOD_OF_ESPEAK = ("en",)
SHORT_SENTENCES = 0.5
"""The share of sentences that end with their first half."""
PAUSE_S = (0.9, 3.0)
LONG_PAUSE_S, LONG_PAUSES = (8.0, 25.0), 0.06
OVERLAP_S, OVERLAPS = (0.4, 1.2), 0.05
"""How far a turn may reach into the last one, and the share that does. Shares of long pauses are meant likewise."""
NOISE_DB = (None, 20.0, None, 10.0)
"""Below the speech, a minute each in turn; None is a quiet room."""
LONGEST_S = 30.0
"""A recording of a person that lasts longer is no turn."""
LOUDNESS = 0.06
"""Effective value of speech, of 1."""
AUDIBLE = 0.01
"""A sample above this, of 1, belongs to the speech of a clip."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What somebody says without a longer pause, and from when to when, in seconds of the track.

    `noise_db` is how far the noise lies below the speech where the turn begins; None in a quiet room. A turn `overlaps`
    if another is spoken at the same time.
    """

    begin_s: float
    end_s: float
    language: str
    voice: str
    text: str
    noise_db: float | None
    overlaps: bool = False


@dataclass(frozen=True, slots=True)
class Clip:
    """A sentence as it was spoken: float32 [n] at `SAMPLE_RATE`, from its first sound to its last."""

    language: str
    voice: str
    text: str
    samples: Samples


def prepare(
    folder: Path, seed: int, languages: Sequence[str], sentences: int, people: Path | None = None
) -> list[Turn]:
    """Turns of the hour, whose sound is `track.wav` in `folder`; both are made unless they lie there.

    `sentences` are spoken, or those recorded in the folder `people`; the rest of the hour says them again, in another
    order and room.
    """
    turns_file = folder / "turns.json"
    if not turns_file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        clips = _recorded(people, languages) if people else _clips(seed, languages, sentences)
        turns, track = lay(asyncio.run(clips), HOUR_S, random.Random(seed))
        sound = engine.Clip((track * 32767).astype("<i2").tobytes(), SAMPLE_RATE)
        (folder / "track.wav").write_bytes(wav(sound))
        turns_file.write_text(json.dumps([asdict(turn) for turn in turns], ensure_ascii=False, indent=1), "utf-8")
    return [Turn(**turn) for turn in json.loads(turns_file.read_text("utf-8"))]


async def _clips(seed: int, languages: Sequence[str], count: int) -> list[Clip]:
    clips: list[Clip] = []
    mouth, dice = models.load(configs.load("embedded").speech[SPEECH]), random.Random(seed)
    texts = {code: _shuffled(SENTENCES[code], dice) for code in languages}
    for number, code, voice in zip(range(count), cycle(languages), cycle(VOICES)):
        text = next(texts[code])
        if dice.random() < SHORT_SENTENCES:
            text = f"{text.partition(', ')[0].rstrip('.!?')}."
        if number % ESPEAK_EVERY == ESPEAK_EVERY - 1 and code in UNDERSTOOD_OF_ESPEAK:
            samples = library.speak(text, VoiceSettings(variant="m1").manner(language_of(code)))
            clips.append(Clip(code, ESPEAK, text, _trimmed(samples, library.SAMPLE_RATE)))
        else:
            with wave.open(io.BytesIO((await mouth.speak_whole(SpeechJob(text, code, voice))).data)) as file:
                frames, rate = file.readframes(file.getnframes()), file.getframerate()
            clips.append(Clip(code, voice, text, _trimmed(_floats(frames), rate)))
    mouth.close()
    return clips


async def _recorded(people: Path, languages: Sequence[str]) -> list[Clip]:
    """Recordings of people as clips, whose `voice` is the kind of recording; none that would be more than a turn."""
    made = []
    for clip in transcription.clips(people, languages):
        with suppress(TooLong):
            sound = await decode(clip.file, SAMPLE_RATE, LONGEST_S, "")
            made.append(Clip(clip.language, clip.kind, clip.text, _trimmed(_floats(bytes(sound.samples)), SAMPLE_RATE)))
    return made


def _floats(frames: bytes) -> Samples:
    import numpy as np

    return np.frombuffer(frames, "<i2").astype(np.float32) / np.float32(32768)


def _trimmed(samples: Samples, rate: int) -> Samples:
    import numpy as np
    import soxr

    sound: Samples = soxr.resample(samples, rate, SAMPLE_RATE).astype(np.float32)
    (loud,) = np.nonzero(np.abs(sound) > AUDIBLE)
    sound = sound[loud[0] : loud[-1] + 1]
    return (sound * np.float32(LOUDNESS / np.sqrt(np.mean(sound**2)))).clip(-1, 1)


def lay(clips: Sequence[Clip], seconds: float, dice: random.Random) -> tuple[list[Turn], Samples]:
    """Turns until `seconds` are full, and their sound: float32 [seconds * SAMPLE_RATE]."""
    import numpy as np

    track = np.zeros(int(seconds * SAMPLE_RATE), np.float32)
    turns: list[Turn] = []
    end_s = 0.0
    for clip in _shuffled(clips, dice):
        begin_s, overlaps = _begin_s(end_s, dice)
        place = round(begin_s * SAMPLE_RATE)
        if place + len(clip.samples) > len(track) - SAMPLE_RATE:  # the last turn ends in silence
            break
        track[place : place + len(clip.samples)] += clip.samples
        end_s = begin_s + len(clip.samples) / SAMPLE_RATE
        noise_db = NOISE_DB[int(begin_s / 60) % len(NOISE_DB)]
        turns.append(Turn(begin_s, end_s, clip.language, clip.voice, clip.text, noise_db, overlaps))
        if overlaps:
            *_, last, _ = turns
            turns[-2] = Turn(**asdict(last) | {"overlaps": True})
    _add_noise(track, dice.randrange(1 << 32))
    return turns, track.clip(-1, 1)


def _shuffled(every: Sequence[T], dice: random.Random) -> Iterator[T]:
    """All without end, each once before any comes again."""
    order = list(every)
    while True:
        dice.shuffle(order)
        yield from order


def _begin_s(end_s: float, dice: random.Random) -> tuple[float, bool]:
    chance = dice.random()
    if end_s and chance < OVERLAPS:
        return end_s - dice.uniform(*OVERLAP_S), True
    return end_s + dice.uniform(*(LONG_PAUSE_S if chance > 1 - LONG_PAUSES else PAUSE_S)), False


def _add_noise(track: Samples, seed: int) -> None:
    """Hiss with more of the low tones, as rooms have it: white noise, and its slow part."""
    import numpy as np

    generator = np.random.default_rng(seed)
    minute = 60 * SAMPLE_RATE
    for number, begin in enumerate(range(0, len(track), minute)):
        noise_db = NOISE_DB[number % len(NOISE_DB)]
        if noise_db is None:
            continue
        part = track[begin : begin + minute]
        white = generator.standard_normal(len(part) + 64).astype(np.float32)
        slow = np.convolve(white, np.ones(64, np.float32) / 8, "full")[64 : 64 + len(part)]
        noise = white[: len(part)] + slow
        part += noise * (LOUDNESS * 10 ** (-noise_db / 20) / np.sqrt(np.mean(noise**2)))
