"""What an engine does with its sound: files that grow, whole files, signed files."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from pathlib import Path

import c2pa
import numpy as np
import pytest

from audio.encoding import CODECS
from audio.signing import CERTIFICATE, KEY, SIGNED, SigningError
from contract.catalog import AudioFormat, Serving, SpeechModel
from contract.speech.engine import AudioBlock, SpeechJob
from models.speech.adapter import LENGTH_FIRST, SpeechAdapter, Spoken
from tests.audio.test_encoding import decoded, likeness, sound
from tests.audio.test_signing import Authority
from tests.provenance import read_provenance

FORMATS: list[AudioFormat] = ["wav", *CODECS]
TEXT = "three parts"
MODEL = SpeechModel(
    id="hummer",
    owned_by="test",
    provider="hum",
    languages=("en",),
    max_input_chars=100,
    serving=Serving(adapter="tests.audio.test_in_engines:Hummer", runtime="hum-1"),
)
SOUND = sound(3, MODEL.sample_rate)


class Hummer(SpeechAdapter):
    """Three parts of a second."""

    def render(self, job: SpeechJob) -> Iterator[Spoken]:
        for part, characters in zip(np.split(SOUND, 3), (4, 8, len(TEXT)), strict=True):
            yield Spoken(part, characters)


async def blocks_of(format: AudioFormat) -> list[AudioBlock]:
    engine = Hummer(MODEL, None)
    try:
        return [block async for block in engine.speak(SpeechJob(TEXT, "en", format=format))]
    finally:
        engine.close()


@pytest.fixture
def _signing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv(CERTIFICATE, str(authority.certificate))
    monkeypatch.setenv(KEY, str(authority.key))


@pytest.mark.parametrize("format", FORMATS)
async def test_a_file_comes_as_it_is_made(format: AudioFormat) -> None:
    blocks = await blocks_of(format)
    assert sorted({block.characters for block in blocks}) == [4, 8, len(TEXT)], "so far it is billed"
    if format in LENGTH_FIRST:
        assert {block.characters for block in blocks if block.data} == {len(TEXT)}
    assert blocks[-1].seconds == 3
    data = b"".join(block.data for block in blocks)
    assert likeness(SOUND, decoded(data, MODEL.sample_rate)) > 0.99
    assert read_provenance(data)["engine"] == "hum-1"


async def test_a_whole_file_says_how_long_it_is() -> None:
    engine = Hummer(MODEL, None)
    whole = {format: await engine.speak_whole(SpeechJob(TEXT, "en", format=format)) for format in FORMATS}
    engine.close()
    for format, block in whole.items():
        assert (block.characters, block.seconds) == (len(TEXT), 3)
        assert likeness(SOUND, decoded(block.data, MODEL.sample_rate)) > 0.99, format
    data = whole["wav"].data
    assert struct.unpack_from("<I", data, 4) == (len(data) - 8,)
    assert struct.unpack_from("<I", data, data.index(b"data") + 4) == (len(SOUND) * 2,)


@pytest.mark.usefixtures("_signing")
@pytest.mark.parametrize("format", FORMATS)
async def test_formats_that_can_are_signed_and_come_at_the_end(format: AudioFormat) -> None:
    blocks = await blocks_of(format)
    data = b"".join(block.data for block in blocks)
    assert likeness(SOUND, decoded(data, MODEL.sample_rate)) > 0.99
    assert {block.characters for block in blocks} == {4, 8, len(TEXT)}, "so far it is billed"
    if format in SIGNED:
        assert {block.characters for block in blocks if block.data} == {len(TEXT)}
        reader = c2pa.Reader({"wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac"}[format], io.BytesIO(data))
        assert reader.get_validation_state() == "Valid"


@pytest.mark.usefixtures("_signing")
async def test_an_engine_that_cannot_sign_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CERTIFICATE, str(tmp_path / "lost.pem"))
    with pytest.raises(SigningError, match=r"lost\.pem, which cannot be read"):
        Hummer(MODEL, None)
