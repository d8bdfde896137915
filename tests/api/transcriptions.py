"""Transcriptions over the real app: what their tests send, over which service, and recognizers that follow a script.

Recordings are texts that the engine of `tests.engines` obeys. Real recordings: tests/models, tests/cluster.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from contract.errors import ENGINE_FAILED, ApiError
from contract.transcription.engine import Segment, TranscriptionJob, TranscriptUpdate
from tests.api.conftest import Api, events
from tests.api.engines import Acting, LocalEngine
from tests.catalogs import transcribers, with_serving

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
    return api.with_models(transcription={id: with_serving(m, options=options) for id, m in models.items()})


@dataclass
class Recognizer:
    """Transcribers that a script answers for: one text or error for each sound, the last one for ever.

    With the text as a hint they give the same again, or `hinted`.
    """

    engine: LocalEngine
    script: list[str | ApiError]
    hinted: str = ""
    piece_s: float = 1.0
    jobs: list[TranscriptionJob] = field(default_factory=list)
    hints: list[TranscriptionJob] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine.adapter = self.adapter = Acting(answer=self.answer)
        if isinstance(error := self.script[0], ApiError) and error.fault is ENGINE_FAILED:
            self.engine.handle.sleep()
            self.engine.watch.failed.set()

    def answer(self, job: TranscriptionJob) -> list[TranscriptUpdate | None]:
        (self.jobs if job.prompt is None else self.hints).append(job)
        if job.prompt is None:
            self.text = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(self.text, ApiError):
            raise self.text
        text = self.hinted if job.prompt and self.hinted else self.text
        pieces, each_s = [part for part in text.split("|") if part], self.piece_s
        segments = tuple(Segment(piece, n * each_s, (n + 1) * each_s) for n, piece in enumerate(pieces))
        return [None, TranscriptUpdate(1.0), TranscriptUpdate(1.0, 1.0, job.language, segments)]


def recognizing(api: Api, *script: str | ApiError, **serving: Any) -> Recognizer:
    model = with_serving(transcribers()["voxtral-mini-transcribe"], **serving)
    recognizer = Recognizer(LocalEngine(model), list(script))
    api.replace_engines(recognizer.engine, *(model.deployment for model in api.service.catalog.transcription.values()))
    return recognizer
