"""Turns at the decoder belong to organisations: fifty keys of one have one turn, beside a key of another one.

The decoder is the true one, in a process for each file: clips are decoded in the ingress, recordings beside an engine.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx
import pytest

from audio import sandbox
from contract.access import Scope
from contract.transcription.engine import Segment, TranscriptionJob, TranscriptUpdate
from models.transcription.adapter import Recording, TranscriptionAdapter
from tests.api.conftest import Api
from tests.api.sounds import wav
from tests.waiting import until

KEYS = 50


class Attentive(TranscriptionAdapter):
    """Decodes as every transcriber does, and hears a word."""

    async def listen(self, job: TranscriptionJob, recording: Recording) -> AsyncGenerator[TranscriptUpdate, None]:
        seconds = recording.sound.seconds
        yield TranscriptUpdate(seconds, seconds, "en", (Segment("hello", 0.0, seconds),))


async def of_a_clip(api: Api, key: str) -> httpx.Response:
    clip = base64.b64encode(wav()).decode()
    body = {"input": "hello", "reference_audio_b64": clip, "language": "en"}
    return await api.send("POST", "/v1/audio/speech", key, json=body)


async def of_a_recording(api: Api, key: str) -> httpx.Response:
    return await api.send("POST", "/v1/audio/transcriptions", key, files={"file": ("memo.wav", wav())})


@pytest.mark.parametrize("send", [of_a_clip, of_a_recording])
async def test_fifty_keys_of_an_organisation_hold_up_no_other(api: Api, send: Callable[[Api, str], Any]) -> None:
    model = api.service.catalog.transcription["voxtral-mini-transcribe"]
    api.service.engine(model).adapter = Attentive(model, None)  # type: ignore[attr-defined]
    await api.organisation("rival")
    theirs = await api.key(*Scope, org="rival")
    keys = [await api.key(*Scope) for _ in range(KEYS)]
    tasks = [asyncio.create_task(send(api, key)) for key in keys]
    # One is decoded, two where each key is an owner; the others wait or were refused.
    await until(lambda: sandbox._slots.waiting + sum(task.done() for task in tasks) >= KEYS - sandbox.CHILDREN)
    other = asyncio.create_task(send(api, theirs))
    # From here on: how long the other one takes to its turn is the machine's to say.
    await until(lambda: sandbox._slots.free == 0 or other.done())
    served = [task for task in tasks if task.done() and task.result().status_code == 200]
    reply = await other
    assert reply.status_code == 200, reply.text
    before = sum(task.done() and task.result().status_code == 200 for task in tasks) - len(served)
    assert before <= 3, f"{before} of {KEYS} files came before the one of another organisation"
    replies = await asyncio.gather(*tasks)
    assert {r.status_code for r in replies} == {200, 429}
    assert {r.json()["error"]["code"] for r in replies if r.status_code == 429} == {"busy"}
    # One is decoded at a time, so that eight more are waiting when the others come.
    assert sandbox.OWNER_WAITING + 1 <= sum(r.status_code == 200 for r in replies) <= sandbox.OWNER_WAITING + 4
