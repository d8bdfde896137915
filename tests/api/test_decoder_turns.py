"""Turns at the decoder belong to organisations: fifty keys of one have one turn, beside a key of another one.

The decoder is the true one, in a process for each file: clips are decoded in the ingress, recordings beside an engine.
"""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx
import pytest

from audio import sandbox
from autoscaling.engine import owner_name
from contract.access import Scope
from contract.transcription.engine import Segment, TranscriptionJob, TranscriptUpdate
from models.transcription.adapter import Recording, TranscriptionAdapter
from tests.api.conftest import Api
from tests.api.live import scripted
from tests.api.sounds import wav
from tests.waiting import until

KEYS = 50


class Attentive(TranscriptionAdapter):
    """Decodes as every transcriber does, and hears a word."""

    async def listen(self, job: TranscriptionJob, recording: Recording) -> AsyncGenerator[TranscriptUpdate, None]:
        seconds = recording.sound.seconds
        yield TranscriptUpdate(seconds, seconds, "en", (Segment("hello", 0.0, seconds),))


async def of_a_clip(api: Api, key: str) -> httpx.Response:
    clip = base64.b64encode(wav(sample=b"\1\0")).decode()
    body = {"input": "hello", "reference_audio_b64": clip, "language": "en"}
    return await api.send("POST", "/v1/audio/speech", key, json=body)


async def of_a_recording(api: Api, key: str) -> httpx.Response:
    return await api.send("POST", "/v1/audio/transcriptions", key, files={"file": ("memo.wav", wav())})


@pytest.mark.parametrize("send", [of_a_clip, of_a_recording])
async def test_fifty_keys_of_an_organisation_hold_up_no_other(api: Api, send: Callable[[Api, str], Any]) -> None:
    scripted(api)
    model = api.service.catalog.transcription["voxtral-mini-transcribe"]
    api.service.engine(model).adapter = Attentive(model, None)  # type: ignore[attr-defined]
    await api.organisation("rival")
    theirs = await api.key(*Scope, org="rival")
    keys = [await api.key(*Scope) for _ in range(KEYS)]
    async with sandbox._slots.of(owner_name(1)):  # as a long file of theirs does
        tasks = [asyncio.create_task(send(api, key)) for key in keys]
        await until(lambda: sandbox._slots.waiting + sum(task.done() for task in tasks) == KEYS)
        reply = await send(api, theirs)
        assert reply.status_code == 200, reply.text
        assert sandbox._slots.waiting == sandbox.OWNER_WAITING, "none of them came before the one of another"
    replies = await asyncio.gather(*tasks)
    assert Counter(r.status_code for r in replies) == {200: sandbox.OWNER_WAITING, 429: KEYS - sandbox.OWNER_WAITING}
    assert {r.json()["error"]["code"] for r in replies if r.status_code == 429} == {"busy"}
