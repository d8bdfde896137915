"""What `benchmarks.speed.gpu` asks engines that speak and listen, asked of twins; language has its own files."""

from __future__ import annotations

from pathlib import Path

import pytest

import configs
import models
from benchmarks.speed import asks
from tests.twins import supertonic, whisper

TWINS = configs.load("twins")


async def test_a_sentence_is_spoken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLANCE_HOME", str(tmp_path))
    supertonic.make(tmp_path / "twins" / "supertonic-3")
    model = TWINS.speech["supertonic-3"]
    engine = models.load(model)
    try:
        (asked,) = await asks.speech(engine, model, None)
    finally:
        engine.close()
    assert asked.what == "sentence"
    assert "s of sound" in asked.result


@pytest.mark.usefixtures("libraries")
async def test_a_recording_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLANCE_HOME", str(tmp_path))
    whisper.make(tmp_path / "twins" / "whisper-large-v3")
    model = TWINS.transcription["whisper-large-v3"]
    file = tmp_path / "tone.wav"
    file.write_bytes(asks.tone())
    engine = models.load(model)
    try:
        heard = [*await asks.transcription(engine, model, None), *await asks.transcription(engine, model, file)]
    finally:
        engine.close()
    assert len(heard) == 2
    assert all(asked.result.startswith(f"{asks.TONE_S}.0 s of sound") for asked in heard)
