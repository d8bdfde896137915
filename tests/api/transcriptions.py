"""Transcriptions over the real app: what the tests of them send, and over which service.

Recordings are texts that the engine of `tests.engines` obeys. Real recordings: tests/models, tests/cluster.
"""

from __future__ import annotations

import json
from typing import Any

import httpx

from contract.catalog import TranscriptionModel
from tests.api.conftest import Api, events

DEFAULT, WHISPER = "voxtral-mini-transcribe", "whisper-large-v3"
PATH = "/v1/audio/transcriptions"

Fields = dict[str, Any]


async def transcribe(api: Api, recording: str | bytes = "good morning", **fields: Any) -> httpx.Response:
    return await api.send("POST", PATH, files={"file": ("memo.mp3", recording)}, data=fields)


def body_of(reply: httpx.Response) -> Fields:
    assert reply.status_code == 200, reply.text
    body: Fields = reply.json()
    return body


def events_of(reply: httpx.Response) -> list[Fields]:
    """The events of a stream."""
    return [json.loads(event) for event in events(reply)]


async def asked(api: Api, **fields: Any) -> Fields:
    """Requests of the engine."""
    job: Fields = json.loads(body_of(await transcribe(api, "told", **fields))["text"])
    return job


def engine_of(api: Api, model: str = DEFAULT) -> Any:
    return api.service.engines[api.service.catalog.transcription[model].deployment].adapter  # type: ignore[attr-defined]


def within(api: Api, **times: float) -> Api:
    """The same service with less time to answer."""
    models = api.service.catalog.transcription
    return api.with_models(transcription={id: m.model_copy(update=times) for id, m in models.items()})


def with_options(api: Api, **options: Any) -> Api:
    """The same service over engines of other abilities."""
    models = api.service.catalog.transcription

    def able(model: TranscriptionModel) -> TranscriptionModel:
        assert model.serving
        return model.model_copy(update={"serving": model.serving.model_copy(update={"options": options})})

    return api.with_models(transcription={id: able(model) for id, model in models.items()})
