"""The provider's transcriber over real sockets: what it asks, what it makes of answers, and of everything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from audio.sandbox import Sound
from contract.errors import ApiError
from contract.transcription.engine import TranscriptionJob, TranscriptUpdate
from models.options import OptionsError
from models.transcription.adapter import SAMPLE_RATE, Recording
from models.transcription.mistral import ANSWER_BYTES, MistralTranscription
from tests.models.providers import KEY, KEY_VARIABLE, SEGMENTS, TEXT, WORDS, TranscriptionProvider, transcription_model

SECONDS = 5.0
SPOKEN = [(text.strip(), start, end) for text, start, end in SEGMENTS]
WAV = b"RIFF....WAVE" + bytes(range(256)) * 8
Load = Callable[..., MistralTranscription]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[TranscriptionProvider]:
    monkeypatch.setenv(KEY_VARIABLE, f"{KEY}\n")
    with TranscriptionProvider() as server:
        yield server


@pytest.fixture
async def load(provider: TranscriptionProvider) -> AsyncIterator[Load]:
    loaded: list[MistralTranscription] = []

    def engine(**options: Any) -> MistralTranscription:
        loaded.append(MistralTranscription(transcription_model(**{"address": provider.address} | options), None))
        return loaded[-1]

    yield engine
    for one in loaded:
        one.close()
        closing = one._closing
        assert closing
        await closing


@pytest.fixture(params=["mistral", "openai"])
def engine(request: pytest.FixtureRequest, load: Load) -> MistralTranscription:
    return load(wire=request.param)


@pytest.fixture
def on_mistral(load: Load) -> MistralTranscription:
    return load()


async def heard(engine: MistralTranscription, file: bytes | Path = WAV, **fields: Any) -> TranscriptUpdate:
    recording = Recording(file, Sound(b"", SAMPLE_RATE, SECONDS))
    (part,) = [part async for part in engine.listen(TranscriptionJob(b"", **fields), recording)]
    return part


async def failure(engine: MistralTranscription, file: bytes | Path = WAV, **fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await heard(engine, file, **fields)
    return caught.value


def do(what: str) -> bytes:
    return f"do {what}".encode()


async def test_segments_with_their_times(engine: MistralTranscription) -> None:
    part = await heard(engine)
    assert (part.duration_s, part.done_s) == (SECONDS, SECONDS)
    assert [(s.text, s.start, s.end) for s in part.segments] == SPOKEN
    assert not any(segment.words for segment in part.segments)


async def test_words_with_their_times_in_sentences_of_the_text(engine: MistralTranscription) -> None:
    part = await heard(engine, words=True)
    words = [(word.text, word.start, word.end) for segment in part.segments for word in segment.words]
    assert words == WORDS
    assert [(s.text, s.start, s.end) for s in part.segments] == SPOKEN
    assert " ".join(segment.text for segment in part.segments) == TEXT


async def test_a_provider_without_times_gives_one_segment(load: Load, provider: TranscriptionProvider) -> None:
    for wire in ("mistral", "openai"):
        engine = load(wire=wire, times=[])
        (segment,) = (await heard(engine, language="en")).segments
        assert (segment.text, segment.start, segment.end) == (TEXT, 0.0, SECONDS)
        assert provider.seen[-1].fields["language"] == ["en"]


async def test_where_there_are_no_times_of_words_there_are_those_of_segments(load: Load) -> None:
    for wire in ("mistral", "openai"):
        part = await heard(load(wire=wire, times=["segment"]), words=True)
        assert [(s.text, s.start, s.end) for s in part.segments] == SPOKEN
        assert not any(segment.words for segment in part.segments)


async def test_what_is_asked_of_mistral(on_mistral: MistralTranscription, provider: TranscriptionProvider) -> None:
    await heard(on_mistral, terms=("Köln", "a,b", "Voxtral"), language="de", prompt="a hint")
    (request,) = provider.seen
    # Its times and a language exclude each other.
    assert request.fields == {
        "model": ["voxtral-mini-latest"],
        "timestamp_granularities": ["segment"],
        "context_bias": ["Köln", "Voxtral"],
    }
    assert (request.file, request.filename) == (WAV, "recording.wav")


async def test_what_is_asked_of_a_server_of_ones_own(load: Load, provider: TranscriptionProvider) -> None:
    engine = load(wire="openai")
    await heard(engine, terms=("Köln", "Voxtral"), language="de", words=True)
    await heard(engine, terms=("Köln",), prompt="As before.")
    first, second = provider.seen
    assert first.fields == {
        "model": ["voxtral-mini-latest"],
        "response_format": ["verbose_json"],
        "timestamp_granularities[]": ["word"],
        "language": ["de"],
        "prompt": ["Köln, Voxtral"],
    }
    assert second.fields["prompt"] == ["As before."]
    assert second.fields["timestamp_granularities[]"] == ["segment"]


async def test_the_language_is_the_one_that_was_sent_else_the_one_that_was_heard(load: Load) -> None:
    for wire, unsent in (("openai", "en"), ("mistral", None)):
        engine = load(wire=wire)
        assert [(await heard(engine, language=language)).language for language in ("de", None)] == ["de", unsent]


BEGINNINGS = {
    "wav": [b"RIFF\0\0\0\0WAVE"],
    "ogg": [b"OggS\0"],
    "flac": [b"fLaC"],
    "webm": [b"\x1aE\xdf\xa3"],
    "m4a": [b"\0\0\0\x20ftypM4A "],
    "aac": [b"\xff\xf1\x50\x80"],
    "mp3": [b"\xff\xfb\x90\x00", b"ID3\x04", b"\xff"],
}


async def test_a_file_goes_up_as_it_came_under_a_name_of_its_kind(
    on_mistral: MistralTranscription, provider: TranscriptionProvider, tmp_path: Path
) -> None:
    path = tmp_path / "../strange; name"
    for ending, beginnings in BEGINNINGS.items():
        for beginning in beginnings:
            data = beginning + b"\r\n--\r\n" + bytes(range(256)) * 1000
            path.write_bytes(data)
            await heard(on_mistral, path)
            await heard(on_mistral, data)
            sent = [(request.file, request.filename) for request in provider.seen[-2:]]
            assert sent == [(data, f"recording.{ending}")] * 2, beginning


async def test_an_answer_may_be_so_long_and_no_longer(on_mistral: MistralTranscription) -> None:
    for extra in (-1, 0):
        assert (await heard(on_mistral, do(f"long:{ANSWER_BYTES + extra}"))).segments == ()
    assert (await failure(on_mistral, do(f"long:{ANSWER_BYTES + 1}"))).fault.name == "UPSTREAM_ERROR"


async def test_a_provider_that_refuses_amid_the_file_is_heard(
    load: Load, provider: TranscriptionProvider, tmp_path: Path
) -> None:
    path = tmp_path / "recording"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    engine = load(address=f"{provider.address}/refusing")
    assert (await failure(engine, path)).fault.name == "UPSTREAM_ERROR"


async def test_leaving_ends_the_request(on_mistral: MistralTranscription, provider: TranscriptionProvider) -> None:
    task = asyncio.create_task(heard(on_mistral, do("silent:")))
    assert await asyncio.to_thread(provider.arrived.wait, 20)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert await asyncio.to_thread(provider.left.wait, 20)


def test_an_option_at_fault_stops_the_start() -> None:
    with pytest.raises(OptionsError, match="times"):
        MistralTranscription(transcription_model(times=["sentence"]), None)
