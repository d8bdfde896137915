"""What tests of speech that is heard back share: ears that hear what a script says, and requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx

from autoscaling.engine import CallContext, Timings
from contract.errors import ENGINE_FAILED, ApiError
from contract.transcription.engine import Segment, TranscriptionJob, TranscriptUpdate
from deployments.ingress.flows.verdicts import BACKGROUND_TASKS
from tests.api.conftest import Api
from tests.api.engines import LocalEngine
from tests.catalogs import transcribers

TEXT = "Good morning, dear listeners."
THREE = "The train leaves. Ferreira sings. Nobody claps."
EARS = "transcription-voxtral-mini-transcribe"


class ScriptedEars(LocalEngine):
    """Ears that hear what the script says, one text or error for each sound; the last one for ever.

    With the text as a hint they hear the same again, or `hinted`.
    """

    def __init__(self, *script: str | ApiError) -> None:
        super().__init__(transcribers()["voxtral-mini-transcribe"])
        self.script, self.jobs, self.go = list(script), list[TranscriptionJob](), asyncio.Event()
        self.go.set()
        self.hints, self.hinted, self.piece_s, self.parts = list[str](), "", 1.0, list[bytes]()

    async def ready(self, within_s: float, *, timings: Timings) -> None:
        if isinstance(error := self.script[0], ApiError) and error.fault is ENGINE_FAILED:
            raise error

    async def stream(self, method: Any, job: Any, *, context: CallContext) -> AsyncGenerator[Any, None]:
        self.callers.append(context.owner)
        await self.go.wait()
        if job.prompt is None:
            self.jobs.append(job)
            self.text = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        else:
            self.hints.append(job.prompt)
            self.parts.append(job.audio)
        if isinstance(self.text, ApiError):
            raise self.text
        text = self.hinted if job.prompt and self.hinted else self.text
        yield TranscriptUpdate(1.0)
        pieces, each_s = [part for part in text.split("|") if part], self.piece_s
        segments = tuple(Segment(piece, n * each_s, (n + 1) * each_s) for n, piece in enumerate(pieces))
        yield TranscriptUpdate(1.0, 1.0, job.language, segments)


def hears(api: Api, *script: str | ApiError) -> ScriptedEars:
    ears = ScriptedEars(*script)
    api.replace_engines(ears, *(model.deployment for model in api.service.catalog.transcription.values()))
    return ears


async def speak(
    api: Api, verify: str | None = "report", text: str = TEXT, key: str | None = None, **fields: Any
) -> httpx.Response:
    body = {"input": text, "language": "en", "provider": "supertonic", **fields}
    return await api.send("POST", "/v1/audio/speech", key, json=body | ({"verify": verify} if verify else {}))


async def fetch(api: Api, reply: httpx.Response, key: str | None = None) -> httpx.Response:
    return await api.send("GET", f"/v1/audio/speech/{reply.headers['x-request-id']}/verdict", key)


async def verdict(api: Api, reply: httpx.Response, key: str | None = None) -> dict[str, Any]:
    """The verdict, once it is there."""
    assert reply.status_code == 200, reply.text
    while BACKGROUND_TASKS:
        await asyncio.wait(set(BACKGROUND_TASKS))
    found = await fetch(api, reply, key)
    assert found.status_code == 200, found.text
    body: dict[str, Any] = found.json()
    return body
