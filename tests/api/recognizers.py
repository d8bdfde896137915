"""Transcribers that a script answers for, where speech is transcribed to be judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from contract.errors import ENGINE_FAILED, ApiError
from contract.transcription.engine import Segment, TranscriptionJob, TranscriptUpdate
from tests.api.conftest import Api
from tests.api.engines import Acting, LocalEngine
from tests.catalogs import transcribers


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
    model = transcribers()["voxtral-mini-transcribe"]
    model = model.model_copy(update={"serving": model.setup.model_copy(update=serving)})
    recognizer = Recognizer(LocalEngine(model), list(script))
    api.replace_engines(recognizer.engine, *(model.deployment for model in api.service.catalog.transcription.values()))
    return recognizer
