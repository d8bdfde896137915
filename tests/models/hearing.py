"""What tests hear: the sound of a job, how high it is, and sounds of their own."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soxr

import configs
import models
from audio.pitch import Pitch, measure
from contract.speech.engine import Clip, SpeechJob
from models.speech.adapter import SpeechAdapter
from models.weights import store
from tests.quick_speech import quick

Samples = np.ndarray[Any, np.dtype[np.float32]]

EVERYDAY: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "speech/sentences.toml").read_text("utf-8"))
"""Sentences by language."""


def sound_of(engine: SpeechAdapter, job: SpeechJob) -> Samples:
    """float32 [n] at the rate of the engine."""
    return np.concatenate([part.samples for part in engine.render(job)])


def spoken(text: str, language: str, sample_rate: int) -> Samples:
    engine = models.load(quick(configs.load("embedded").speech["supertonic-3"]))
    sound = sound_of(engine, SpeechJob(text, language))
    engine.close()
    return soxr.resample(sound, engine.sample_rate, sample_rate).astype(np.float32)


def pitch_of(samples: Samples, sample_rate: int) -> Pitch:
    pitch = measure(samples, sample_rate)
    assert pitch is not None
    return pitch


def saw(f0_hz: float, sample_rate: int, seconds: float) -> Samples:
    times = np.arange(round(seconds * sample_rate)) / sample_rate
    return (2 * (f0_hz * times % 1) - 1).astype(np.float32)


def tone(f0_hz: float, sample_rate: int = 16_000, seconds: float = 1.0) -> Clip:
    return Clip((saw(f0_hz, sample_rate, seconds) * 8000).astype("<i2").tobytes(), sample_rate)


def noise(kind: str, sample_rate: int, seconds: float = 20) -> Samples:
    """What is no voice: `silence`, `noise`, `faint noise`, `hum`, `beeps`, `clicks` or `chords`."""
    times, dice = np.arange(round(seconds * sample_rate)) / sample_rate, np.random.default_rng(0)
    notes = 2 ** (np.floor(times * 2) % 5 / 12) * np.array([[220], [277], [330], [440]])
    made = {
        "silence": np.zeros(len(times)),
        "noise": dice.normal(0, 0.2, len(times)),
        "faint noise": dice.normal(0, 0.002, len(times)),
        "hum": 0.4 * np.sin(2 * np.pi * 50 * times) + 0.2 * np.sin(2 * np.pi * 150 * times),
        "beeps": 0.5 * np.sin(2 * np.pi * 1000 * times) * (times % 1 < 0.3),
        "clicks": (np.arange(len(times)) % 8000 == 0).astype(float),
        "chords": (0.15 * np.sin(2 * np.pi * notes * times)).sum(0) * np.exp(-3 * (times * 2 % 1)),
    }
    return made[kind].clip(-1, 1).astype(np.float32)


def babble(sample_rate: int, seconds: float) -> Samples:
    goes = np.sin(2 * np.pi * 2.5 * np.arange(round(seconds * sample_rate)) / sample_rate) > 0
    return 0.3 * saw(120, sample_rate, seconds) * goes


def whisper_base() -> Callable[..., str]:
    """Transcriber by Whisper base of a sound, float32 [n], its rate and its language."""
    from faster_whisper import WhisperModel

    whisper = WhisperModel(str(store.ensure("whisper-base")), device="cpu", compute_type="int8", cpu_threads=2)

    def understood(sound: Samples, sample_rate: int, language: str) -> str:
        segments, _ = whisper.transcribe(soxr.resample(sound, sample_rate, 16_000), language=language, temperature=0)
        return "".join(segment.text for segment in segments)

    return understood
