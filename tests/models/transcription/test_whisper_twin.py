"""The true loader over a twin of Whisper large-v3: 128 bands, 100 languages, no knowledge. What it says is noise."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import configs
from audio.sandbox import OWNER_WAITING, Sound
from contract.catalog import TranscriptionModel
from contract.transcription.engine import LANGUAGES, TranscriptionJob, TranscriptUpdate
from models.transcription.adapter import SAMPLE_RATE, Recording
from models.transcription.faster_whisper import FasterWhisper
from models.transcription.voice_activity import Block, Span, Window
from models.weights.files import WeightsError
from tests.models.hearing import babble
from tests.models.refusals import loaded_offline, refused
from tests.twins.whisper import make

MODEL = configs.load("twins").transcription["whisper-large-v3"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    make(home / "twins" / "whisper-large-v3")
    return home


@pytest.fixture(scope="module")
def engine(home: Path) -> Iterator[FasterWhisper]:
    engine = loaded_offline(MODEL, home)
    yield engine
    engine.close()


def recording(samples: np.ndarray) -> Recording:
    sound = Sound((samples * 32767).astype("<i2").tobytes(), SAMPLE_RATE, len(samples) / SAMPLE_RATE)
    return Recording(b"", sound)


async def heard(engine: FasterWhisper, samples: np.ndarray, job: TranscriptionJob) -> list[TranscriptUpdate]:
    return [part async for part in engine.listen(job, recording(samples))]


@pytest.mark.parametrize("language", [None, "yue", "de", "jw"])
async def test_a_recording_is_heard_to_its_end(engine: FasterWhisper, language: str | None) -> None:
    parts = await heard(engine, babble(SAMPLE_RATE, 50), TranscriptionJob(b"", language=language, words=True))
    assert {part.language for part in parts} == {language} if language else {parts[0].language} <= set(LANGUAGES)
    assert parts[-1].done_s == parts[-1].duration_s == 50
    times = [at for part in parts for segment in part.segments for at in (segment.start, segment.end)]
    assert times == sorted(times)
    assert all(0 <= at <= 50 for at in times)


async def test_a_batch_has_words_with_times_whatever_is_asked(engine: FasterWhisper) -> None:
    from models.transcription.faster_whisper import Task

    samples = babble(SAMPLE_RATE, 20)
    windows = [Window(2.0, 11.0, (Span(2.0, 11.0),)), Window(11.0, 20.0, (Span(11.0, 20.0),))]
    block = Block(0.0, samples, tuple(windows), 20.0)
    for prompt in (None, "a prompt", "longer than Whisper reads " * 200):
        found = engine.batch(Task("yue", prompt, words=True, owner=""), block, windows)
        assert len(found) == 2
        assert found[0].words
        assert all(type(word.start) is float for word in found[0].words)


async def test_all_languages_of_the_api_are_known(engine: FasterWhisper) -> None:
    assert MODEL.languages == set(LANGUAGES)
    await engine.check_health()


def spoilt(home: Path, folder: Path, **changes: object) -> Path:
    shutil.copytree(home / "twins" / "whisper-large-v3", folder)
    for name, keys in changes.items():
        file = folder / f"{name}.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | keys))  # type: ignore[operator]
    return folder


def test_bands_that_do_not_fit_are_refused(home: Path, tmp_path: Path) -> None:
    folder = spoilt(home, tmp_path / "80", preprocessor_config={"feature_size": 80})
    with pytest.raises(WeightsError, match=r"expects 128 mel bands, but its .* says 80"):
        FasterWhisper(MODEL, folder)


def test_a_language_that_is_said_to_lack_is_found(home: Path) -> None:
    assert MODEL.serving is not None
    serving = MODEL.serving.model_copy(update={"options": {"lacks_languages": ["yue"]}})
    model: TranscriptionModel = MODEL.model_copy(update={"serving": serving})
    with pytest.raises(WeightsError, match=r"is wrong about yue: the weights lack none"):
        FasterWhisper(model, home / "twins" / "whisper-large-v3")


@contextmanager
def endless(path: Path) -> Iterator[Path]:
    os.mkfifo(path)
    held = os.open(path, os.O_RDWR)
    yield path
    os.close(held)


async def test_too_many_files_of_one_owner_are_refused_as_busy(engine: FasterWhisper, tmp_path: Path) -> None:
    with endless(tmp_path / "pipe") as pipe:
        stuck = TranscriptionJob(pipe.as_uri(), owner="greedy")
        waiting = [asyncio.ensure_future(anext(engine.transcribe(stuck))) for _ in range(1 + OWNER_WAITING)]
        await asyncio.sleep(0)
        with refused("BUSY", "too many requests of your organisation wait"):
            await anext(engine.transcribe(stuck))
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
