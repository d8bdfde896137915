"""Both engines over a provider's API, in both of its schemas: what they ask, and what they make of all it may do."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audio.sandbox import Sound
from contract.errors import ApiError
from contract.speech.engine import SpeechJob
from contract.transcription.engine import TranscriptionJob, TranscriptUpdate
from models.options import OptionsError
from models.speech import mistral
from models.speech.mistral import MistralSpeech
from models.transcription.adapter import SAMPLE_RATE, Recording
from models.transcription.mistral import ANSWER_BYTES, MistralTranscription
from tests.models.providers import (
    BROKEN,
    KEY,
    KEY_VARIABLE,
    NOBODY,
    SEGMENTS,
    TEXT,
    WORDS,
    Provider,
    SpeechHandler,
    TranscriptionHandler,
    ramp,
    speech_model,
    transcription_model,
)
from tests.models.refusals import refused

LOADERS = {
    "speech": lambda address, **options: MistralSpeech(speech_model(address, **options), None),
    "transcription": lambda address, **options: MistralTranscription(transcription_model(address, **options), None),
}
WIRES = ("mistral", "openai")
SECONDS = 5.0
SPOKEN = [(text.strip(), start, end) for text, start, end in SEGMENTS]
WAV = b"RIFF....WAVE" + bytes(range(256)) * 8
Ask = Callable[[str], Awaitable[None]]
Load = Callable[..., Any]
THREADS = ThreadPoolExecutor(16)

of_speech, of_transcripts = (pytest.mark.parametrize("kind", [kind], indirect=True) for kind in LOADERS)


@pytest.fixture(params=LOADERS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(KEY_VARIABLE, f"{KEY}\n")
    return str(request.param)


@pytest.fixture
def provider(kind: str) -> Iterator[Provider]:
    with Provider(SpeechHandler if kind == "speech" else TranscriptionHandler) as server:
        yield server


@pytest.fixture
async def load(anyio_backend: str, kind: str, provider: Provider) -> AsyncIterator[Load]:
    """Starts engines that are closed behind the test."""
    started: list[Any] = []

    def engine(**options: Any) -> Any:
        started.append(LOADERS[kind](**{"address": provider.address} | options))
        return started[-1]

    yield engine
    for one in started:
        one.close()
        if closing := getattr(one, "_closing", None):
            await closing


@pytest.fixture(params=WIRES)
def ask(load: Load, request: pytest.FixtureRequest) -> Ask:
    return asking(load(wire=request.param))


def asking(engine: Any) -> Ask:
    """Asks for something in a way; whatever comes back is all that was asked for."""

    async def speech(how: str) -> None:
        samples = await asyncio.get_running_loop().run_in_executor(THREADS, spoken, engine, how or "Guten Tag.")
        assert samples.dtype == np.float32
        np.testing.assert_allclose(samples, ramp(), atol=1 / 32768)

    async def transcription(how: str) -> None:
        part = await heard(engine, do(how) if how else WAV)
        assert " ".join(segment.text for segment in part.segments) == TEXT

    return speech if isinstance(engine, MistralSpeech) else transcription


def spoken(engine: MistralSpeech, text: str, **fields: Any) -> np.ndarray[Any, Any]:
    return np.concatenate([part.samples for part in engine.render(SpeechJob(text, "de", **fields))])


async def heard(engine: MistralTranscription, file: bytes | Path = WAV, **fields: Any) -> TranscriptUpdate:
    recording = Recording(file, Sound(b"", SAMPLE_RATE, SECONDS))
    (part,) = [part async for part in engine.listen(TranscriptionJob(b"", **fields), recording)]
    return part


def do(what: str) -> bytes:
    return f"do {what}".encode()


async def failure(asked: Awaitable[Any]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await asked
    return caught.value


# Both engines


async def test_a_limit_of_the_provider_is_passed_on_without_its_wait(ask: Ask) -> None:
    error = await failure(ask("limit: please"))
    assert (error.fault.name, error.retry_after_s) == ("PROVIDER_BUSY", None)
    assert "Retry-After" not in error.headers()


NO_TRANSCRIPTS = (
    *("", "<html>please log in</html>", "[" * 100_000, "[]", "{}", '{"text": null}', '{"text": 7}'),
    *('{"text": "a", "segments": "b"}', '{"text": "a", "segments": [1]}', '{"text": "a", "segments": [{"start": 1}]}'),
    '{"text": "\\ud800"}',
)
OTHERS = {
    "speech": ["noise:", "empty:"],
    "transcription": ["packed:", "endless:", *(f"raw:{answer}" for answer in NO_TRANSCRIPTS)],
}


async def test_every_other_answer_is_a_failure_of_the_provider(ask: Ask, provider: Provider, kind: str) -> None:
    """Nothing is asked twice, and the next request is answered."""
    wrong = {}
    for how in (*BROKEN, "page:", *OTHERS[kind]):
        before = len(provider.seen)
        name, asked = (await failure(ask(how))).fault.name, len(provider.seen) - before
        if (name, asked) != ("UPSTREAM_ERROR", 1):
            wrong[how[:40]] = name, asked
        await ask("")
    assert not wrong


async def test_who_cannot_be_reached_says_nothing_or_never_ends_has_failed(kind: str, load: Load) -> None:
    never = ({"deadline_s": 1e-6}, "") if kind == "speech" else ({"deadline_s": 0.2}, "silent:")
    for options, how in (({"address": NOBODY}, ""), never):
        engine = load(**options)
        assert (await failure(asking(engine)(how))).fault.name == "UPSTREAM_ERROR"
        if not how:
            await engine.check_health()


async def test_sixteen_at_once(ask: Ask, provider: Provider) -> None:
    await asyncio.gather(*(ask(f"together: {number}") for number in range(16)))
    assert provider.most_at_once == 16


async def test_connections_are_used_again(ask: Ask, provider: Provider) -> None:
    for _ in range(5):
        await ask("")
    assert provider.connections == 1


async def test_neither_key_nor_words_are_told(ask: Ask, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    caplog.set_level(logging.DEBUG, *(["parlance"] if kind == "transcription" else []))
    ways = ["status:401: Geheimnis", "cut: Geheimnis", "limit: Geheimnis"]
    ways.append("babble: Geheimnis" if kind == "speech" else 'raw:{"text": "Geheimnis"')
    told = [repr(await failure(ask(how))) for how in ways]
    for text in (caplog.text, *told):
        assert not [secret for secret in (KEY, "Geheimnis", "secret detail") if secret in text]
    assert "voxtral failed: it answered 401" in caplog.text


async def test_the_key_goes_to_who_wants_one(load: Load, provider: Provider) -> None:
    for variable, sent in ((KEY_VARIABLE, f"Bearer {KEY}"), (None, None)):
        await asking(load(key_variable=variable, wire="openai"))("")
        assert provider.seen[-1].headers.get("authorization") == sent


def test_what_is_missing_or_at_fault_stops_the_start(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"address": "api.mistral.ai/v1"}, {"address": ""}, {"wire": "soap"}, {"colour": 1}, {"times": ["sentence"]}
    for options in wrong:
        with pytest.raises(OptionsError, match=rf"options\.{next(iter(options))}"):
            LOADERS[kind](**{"address": NOBODY} | options)
    for value, says in (
        *(("", f"set `{KEY_VARIABLE}` in the environment"), ("  ", f"set `{KEY_VARIABLE}`")),
        *((value, f"`{KEY_VARIABLE}` .* set it again") for value in ("schlüssel", "two\nlines", "sk\u200bkey")),
    ):
        monkeypatch.setenv(KEY_VARIABLE, value)
        with pytest.raises(ValueError, match=says) as caught:
            LOADERS[kind](NOBODY)
        assert not value.strip() or value not in str(caught.value)


# Speech


@of_speech
def test_what_is_asked_of_a_speaker(load: Load, provider: Provider) -> None:
    """Without a requested voice, the one of the language speaks, or the first of the stanza."""
    for wire, voice, wanted in (
        ("mistral", "voice_id", {"response_format": "pcm", "stream": True}),
        ("openai", "voice", {"response_format": "wav", "stream_format": "audio"}),
    ):
        engine, before = load(wire=wire), len(provider.seen)
        for language, slug in (("de", "bib-f-20"), ("en", None), ("nl", None)):
            list(engine.render(SpeechJob("Guten Tag.", language, slug)))
        first, *others = [request.fields for request in provider.seen[before:]]
        assert first == {"model": "voxtral-mini-tts-3-0", "input": "Guten Tag.", voice: "voice_1"} | wanted
        assert [fields[voice] for fields in others] == ["voice_478", "voice_481"]


@of_speech
def test_a_voice_without_an_id_is_switched_off(load: Load, provider: Provider) -> None:
    with refused("UNKNOWN_VOICE"):
        spoken(load(), "Guten Tag.", voice="bib-m-65")
    assert not provider.seen


@of_speech
def test_a_long_text_is_asked_for_in_parts(load: Load, provider: Provider) -> None:
    sentence = "Das ist ein Satz von genau fünfzig Zeichen Länge. "
    for extra, requests in ((0, 1), (1, 2)):
        provider.seen.clear()
        text = sentence * (mistral.PART_CHARS // len(sentence)) + "x" * extra
        parts = list(load().render(SpeechJob(text, "de")))
        assert len(provider.seen) == requests
        assert "".join(request.fields["input"] for request in provider.seen) == text
        assert parts[-1].characters == len(text)
        assert sum(len(part.samples) for part in parts) == requests * len(ramp())


@of_speech
def test_sound_is_there_before_the_answer_ends(load: Load, provider: Provider) -> None:
    parts = load().render(SpeechJob("slowly: Guten Tag.", "de"))
    first = next(parts)
    assert 0 < len(first.samples) < len(ramp())
    assert first.characters == len("slowly: Guten Tag.")
    provider.go_on.set()
    assert len(first.samples) + sum(len(part.samples) for part in parts) == len(ramp())


@of_speech
def test_events_that_break_off_sound_that_is_short_and_silence_are_a_failure(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wire, how in (*(("mistral", how) for how in ("babble:", "undone:", "torn:", "error:")), ("openai", "short:")):
        with refused("UPSTREAM_ERROR"):
            spoken(load(wire=wire), how)
    monkeypatch.setattr(mistral, "SILENCE_S", 0.1)
    for how in ("silent:", "slowly:"):
        with refused("UPSTREAM_ERROR"):
            spoken(load(), how)


# Transcripts


@of_transcripts
async def test_times_are_those_of_segments_or_of_words_in_sentences_of_the_text(load: Load) -> None:
    """Times of segments take the place of times of words."""
    cases: list[tuple[dict[str, Any], bool, list[Any]]]
    cases = [({}, False, []), ({}, True, WORDS), ({"times": ["segment"]}, True, [])]
    for wire, (times, asked, words) in product(WIRES, cases):
        part = await heard(load(wire=wire, **times), words=asked)
        assert (part.duration_s, part.done_s) == (SECONDS, SECONDS)
        assert [(s.text, s.start, s.end) for s in part.segments] == SPOKEN
        assert [(word.text, word.start, word.end) for s in part.segments for word in s.words] == words


@of_transcripts
async def test_a_provider_without_times_gives_one_segment(load: Load, provider: Provider) -> None:
    for wire in WIRES:
        (segment,) = (await heard(load(wire=wire, times=[]), language="en")).segments
        assert (segment.text, segment.start, segment.end) == (TEXT, 0.0, SECONDS)
        assert provider.seen[-1].fields["language"] == ["en"]


@of_transcripts
async def test_what_is_asked_of_mistral(load: Load, provider: Provider) -> None:
    await heard(load(), terms=("Köln", "a,b", "Voxtral"), language="de", prompt="a hint")
    (request,) = provider.seen
    # Its times and a language exclude each other.
    assert request.fields == {
        "model": ["voxtral-mini-latest"],
        "timestamp_granularities": ["segment"],
        "context_bias": ["Köln", "Voxtral"],
    }
    assert (request.file, request.filename) == (WAV, "recording.wav")


@of_transcripts
async def test_what_is_asked_of_a_server_of_ones_own(load: Load, provider: Provider) -> None:
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


@of_transcripts
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


@of_transcripts
async def test_a_file_goes_up_as_it_came_under_a_name_of_its_kind(
    load: Load, provider: Provider, tmp_path: Path
) -> None:
    engine, path = load(), tmp_path / "../strange; name"
    for ending, beginnings in BEGINNINGS.items():
        for beginning in beginnings:
            data = beginning + b"\r\n--\r\n" + bytes(range(256)) * 1000
            path.write_bytes(data)
            await heard(engine, path)
            await heard(engine, data)
            sent = [(request.file, request.filename) for request in provider.seen[-2:]]
            assert sent == [(data, f"recording.{ending}")] * 2, beginning


@of_transcripts
async def test_an_answer_may_be_so_long_and_no_longer(load: Load) -> None:
    engine = load()
    for extra in (-1, 0):
        assert (await heard(engine, do(f"long:{ANSWER_BYTES + extra}"))).segments == ()
    assert (await failure(heard(engine, do(f"long:{ANSWER_BYTES + 1}")))).fault.name == "UPSTREAM_ERROR"


@of_transcripts
async def test_a_provider_that_refuses_amid_the_file_is_heard(load: Load, provider: Provider, tmp_path: Path) -> None:
    path = tmp_path / "recording"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    assert (await failure(heard(load(address=f"{provider.address}/refusing"), path))).fault.name == "UPSTREAM_ERROR"


@of_transcripts
async def test_leaving_ends_the_request(load: Load, provider: Provider) -> None:
    task = asyncio.create_task(heard(load(), do("silent:")))
    assert await asyncio.to_thread(provider.arrived.wait, 20)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert await asyncio.to_thread(provider.left.wait, 20)
