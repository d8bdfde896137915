"""The provider's transcriber over real sockets: what it asks, what it makes of answers, and of everything else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from audio.sandbox import Sound
from contract.catalog import Serving, TranscriptionModel
from contract.errors import ApiError
from contract.transcription.engine import TranscriptionJob, TranscriptUpdate
from models.options import OptionsError
from models.transcription.adapter import SAMPLE_RATE, Recording
from models.transcription.mistral import ANSWER_BYTES, MistralTranscription
from tests.models.serving import BROKEN
from tests.models.transcription.provider import SEGMENTS, TEXT, WORDS, Provider

KEY = "sk-of-the-test"
NOBODY = "http://127.0.0.1:1/v1"
SECONDS = 5.0
SPOKEN = [(text.strip(), start, end) for text, start, end in SEGMENTS]
WAV = b"RIFF....WAVE" + bytes(range(256)) * 8
Load = Callable[..., MistralTranscription]
OPTIONS = {"model": "voxtral-mini-latest", "key_variable": "TEST_TRANSCRIPTION_KEY"}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as server:
        yield server


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_TRANSCRIPTION_KEY", f"{KEY}\n")


def model(address: str, deadline_s: float = 20, **options: Any) -> TranscriptionModel:
    serving = Serving(
        adapter="models.transcription.mistral:MistralTranscription",
        runtime="test",
        options=OPTIONS | {"address": address} | options,
        deadline_s=deadline_s,
    )
    return TranscriptionModel(id="voxtral", owned_by="t", serving=serving)


@pytest.fixture
async def load(provider: Provider) -> AsyncIterator[Load]:
    loaded: list[MistralTranscription] = []

    def engine(**options: Any) -> MistralTranscription:
        loaded.append(MistralTranscription(model(**{"address": provider.address} | options), None))
        return loaded[-1]

    yield engine
    for one in loaded:
        one.close()
        assert one._closing
        await one._closing


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


async def test_a_provider_without_times_gives_one_segment(load: Load, provider: Provider) -> None:
    for wire in ("mistral", "openai"):
        engine = load(wire=wire, times=[])
        (segment,) = (await heard(engine, language="en")).segments
        assert (segment.text, segment.start, segment.end) == (TEXT, 0.0, SECONDS)
        assert provider.seen[-1].fields["language"] == ["en"]


@pytest.mark.parametrize("wire", ["mistral", "openai"])
async def test_where_there_are_no_times_of_words_there_are_those_of_segments(load: Load, wire: str) -> None:
    engine = load(wire=wire, times=["segment"])
    part = await heard(engine, words=True)
    assert [(s.text, s.start, s.end) for s in part.segments] == SPOKEN
    assert not any(segment.words for segment in part.segments)


async def test_what_is_asked_of_mistral(on_mistral: MistralTranscription, provider: Provider) -> None:
    await heard(on_mistral, terms=("Köln", "a,b", "Voxtral"), language="de", prompt="a hint")
    (request,) = provider.seen
    # Its times and a language exclude each other.
    assert request.fields == {
        "model": ["voxtral-mini-latest"],
        "timestamp_granularities": ["segment"],
        "context_bias": ["Köln", "Voxtral"],
    }
    assert (request.file, request.filename) == (WAV, "recording.wav")
    assert request.headers["authorization"] == f"Bearer {KEY}"


async def test_what_is_asked_of_a_server_of_ones_own(load: Load, provider: Provider) -> None:
    engine = load(wire="openai", key_variable=None)
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
    assert "authorization" not in first.headers


async def test_the_language_is_the_one_that_was_sent_else_the_one_that_was_heard(load: Load) -> None:
    for wire, unsent in (("openai", "en"), ("mistral", None)):
        engine = load(wire=wire)
        assert [(await heard(engine, language=language)).language for language in ("de", None)] == ["de", unsent]


@pytest.mark.parametrize(
    ("head", "ending"),
    [
        (b"RIFF\0\0\0\0WAVE", "wav"),
        (b"OggS\0", "ogg"),
        (b"fLaC", "flac"),
        (b"\x1aE\xdf\xa3", "webm"),
        (b"\0\0\0\x20ftypM4A ", "m4a"),
        (b"\xff\xf1\x50\x80", "aac"),
        (b"\xff\xfb\x90\x00", "mp3"),
        (b"ID3\x04", "mp3"),
        (b"\xff", "mp3"),
    ],
)
async def test_a_file_goes_up_as_it_came_under_a_name_of_its_kind(
    on_mistral: MistralTranscription, provider: Provider, tmp_path: Path, head: bytes, ending: str
) -> None:
    path = tmp_path / "../strange; name"
    data = head + b"\r\n--\r\n" + bytes(range(256)) * 1000
    path.write_bytes(data)
    await heard(on_mistral, path)
    await heard(on_mistral, data)
    assert [(request.file, request.filename) for request in provider.seen] == [(data, f"recording.{ending}")] * 2


async def test_connections_are_used_again(on_mistral: MistralTranscription, provider: Provider) -> None:
    for _ in range(3):
        await heard(on_mistral)
    assert provider.connections == 1


async def test_a_limit_of_the_provider_is_passed_on_without_its_wait(engine: MistralTranscription) -> None:
    error = await failure(engine, do("limit:"))
    assert (error.fault.name, error.retry_after_s) == ("PROVIDER_BUSY", None)


NO_TRANSCRIPTS = (
    *("", "<html>please log in</html>", "[" * 100_000, "[]", "{}", '{"text": null}', '{"text": 7}'),
    *('{"text": "a", "segments": "b"}', '{"text": "a", "segments": [1]}', '{"text": "a", "segments": [{"start": 1}]}'),
    '{"text": "\\ud800"}',
)


@pytest.mark.parametrize("how", [*BROKEN, "packed:", "endless:", *(f"raw:{answer}" for answer in NO_TRANSCRIPTS)])
async def test_every_other_answer_is_a_failure_of_the_provider(
    engine: MistralTranscription, provider: Provider, how: str
) -> None:
    assert (await failure(engine, do(how))).fault.name == "UPSTREAM_ERROR"
    assert len(provider.seen) == 1
    assert (await heard(engine)).segments


async def test_an_answer_may_be_so_long_and_no_longer(on_mistral: MistralTranscription) -> None:
    for extra in (-1, 0):
        assert (await heard(on_mistral, do(f"long:{ANSWER_BYTES + extra}"))).segments == ()
    assert (await failure(on_mistral, do(f"long:{ANSWER_BYTES + 1}"))).fault.name == "UPSTREAM_ERROR"


async def test_a_provider_that_refuses_amid_the_file_is_heard(load: Load, provider: Provider, tmp_path: Path) -> None:
    path = tmp_path / "recording"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    engine = load(address=f"{provider.address}/refusing")
    assert (await failure(engine, path)).fault.name == "UPSTREAM_ERROR"


async def test_a_provider_that_does_not_answer_in_time_has_failed(load: Load) -> None:
    engine = load(deadline_s=0.2)
    assert (await failure(engine, do("silent:"))).fault.name == "UPSTREAM_ERROR"


async def test_leaving_ends_the_request(on_mistral: MistralTranscription, provider: Provider) -> None:
    task = asyncio.create_task(heard(on_mistral, do("silent:")))
    assert await asyncio.to_thread(provider.arrived.wait, 20)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert await asyncio.to_thread(provider.left.wait, 20)


async def test_recordings_wait_for_the_provider_side_by_side(
    on_mistral: MistralTranscription, provider: Provider
) -> None:
    waiting = [asyncio.create_task(heard(on_mistral, do("silent:"))) for _ in range(4)]
    assert (await heard(on_mistral)).segments
    provider.go_on.set()
    for task in waiting:
        assert (await task).segments


async def test_nobody_listens(load: Load) -> None:
    engine = load(address=NOBODY)
    assert (await failure(engine)).fault.name == "UPSTREAM_ERROR"
    await engine.check_health()


async def test_neither_key_nor_words_come_into_a_log(
    on_mistral: MistralTranscription, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "parlance")
    await failure(on_mistral, do("status:401"))
    await failure(on_mistral, do('raw:{"text": "what was said"'))
    assert "it answered 401" in caplog.text
    assert KEY not in caplog.text
    assert "secret detail" not in caplog.text
    assert "what was said" not in caplog.text


@pytest.mark.parametrize("value", ["", "  ", "schlüssel", "two\nlines"])
def test_a_key_that_is_missing_or_broken_stops_the_start(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TEST_TRANSCRIPTION_KEY", value)
    with pytest.raises(ValueError, match="TEST_TRANSCRIPTION_KEY") as caught:
        MistralTranscription(model(NOBODY), None)
    assert not value.strip() or value not in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"address": "api.mistral.ai"}, {"wire": "soap"}, {"times": ["sentence"]}, {"colour": 1}]
)
def test_an_option_at_fault_stops_the_start(options: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match=next(iter(options))):
        MistralTranscription(model(**{"address": NOBODY} | options), None)
