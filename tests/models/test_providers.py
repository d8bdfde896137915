"""Both engines over a provider's API, in both of its schemas: what they make of whatever a provider may do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from audio.sandbox import Sound
from contract.errors import ApiError
from contract.speech.engine import SpeechJob
from contract.transcription.engine import TranscriptionJob
from models.options import OptionsError
from models.speech.mistral import MistralSpeech
from models.transcription.adapter import SAMPLE_RATE, Recording
from models.transcription.mistral import MistralTranscription
from tests.models.providers import (
    BROKEN,
    KEY,
    KEY_VARIABLE,
    NOBODY,
    TEXT,
    Provider,
    SpeechProvider,
    TranscriptionProvider,
    ramp,
    speech_model,
    transcription_model,
)

LOADERS = {
    "speech": lambda address, **options: MistralSpeech(speech_model(address, **options), None),
    "transcription": lambda address, **options: MistralTranscription(transcription_model(address, **options), None),
}
Ask = Callable[[str], Awaitable[None]]
THREADS = ThreadPoolExecutor(16)


@pytest.fixture(params=LOADERS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(KEY_VARIABLE, f"{KEY}\n")
    return str(request.param)


@pytest.fixture
def provider(kind: str) -> Iterator[Provider]:
    with SpeechProvider() if kind == "speech" else TranscriptionProvider() as server:
        yield server


def asking(engine: Any) -> Ask:
    """Asks for something in a way; whatever comes back is all that was asked for."""

    async def speech(how: str) -> None:
        job, loop = SpeechJob(how or "Guten Tag.", "de"), asyncio.get_running_loop()
        parts = await loop.run_in_executor(THREADS, lambda: list(engine.render(job)))
        samples = np.concatenate([part.samples for part in parts])
        assert samples.dtype == np.float32
        np.testing.assert_allclose(samples, ramp(), atol=1 / 32768)

    async def transcription(how: str) -> None:
        recording = Recording(f"do {how}".encode() if how else b"RIFF....WAVE", Sound(b"", SAMPLE_RATE, 5.0))
        (part,) = [part async for part in engine.listen(TranscriptionJob(b""), recording)]
        assert " ".join(segment.text for segment in part.segments) == TEXT

    return speech if isinstance(engine, MistralSpeech) else transcription


async def close(engine: Any) -> None:
    engine.close()
    if closing := getattr(engine, "_closing", None):
        await closing


@pytest.fixture(params=["mistral", "openai"])
async def ask(kind: str, provider: Provider, request: pytest.FixtureRequest) -> AsyncIterator[Ask]:
    engine = LOADERS[kind](provider.address, wire=request.param)
    yield asking(engine)
    await close(engine)


async def failure(ask: Ask, how: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await ask(how)
    return caught.value


async def test_a_limit_of_the_provider_is_passed_on_without_its_wait(ask: Ask) -> None:
    error = await failure(ask, "limit: please")
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
        name, asked = (await failure(ask, how)).fault.name, len(provider.seen) - before
        if (name, asked) != ("UPSTREAM_ERROR", 1):
            wrong[how[:40]] = name, asked
        await ask("")
    assert not wrong


async def test_who_cannot_be_reached_says_nothing_or_never_ends_has_failed(kind: str, provider: Provider) -> None:
    never = {"deadline_s": 1e-6}, ""
    if kind == "transcription":
        never = {"deadline_s": 0.2}, "silent:"
    for options, how in (({"address": NOBODY}, ""), never):
        engine = LOADERS[kind](**{"address": provider.address} | options)
        assert (await failure(asking(engine), how)).fault.name == "UPSTREAM_ERROR"
        if not how:
            await engine.check_health()
        await close(engine)


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
    told = [repr(await failure(ask, how)) for how in ways]
    for text in (caplog.text, *told):
        assert not [secret for secret in (KEY, "Geheimnis", "secret detail") if secret in text]
    assert "voxtral failed: it answered 401" in caplog.text


async def test_the_key_goes_to_who_wants_one(kind: str, provider: Provider) -> None:
    for variable, sent in ((KEY_VARIABLE, f"Bearer {KEY}"), (None, None)):
        engine = LOADERS[kind](provider.address, key_variable=variable, wire="openai")
        await asking(engine)("")
        await close(engine)
        headers = provider.seen[-1][1] if kind == "speech" else provider.seen[-1].headers
        assert headers.get("authorization") == sent


def test_what_is_missing_or_at_fault_stops_the_start(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({"address": "api.mistral.ai/v1"}, {"address": ""}, {"wire": "soap"}, {"colour": 1}):
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
