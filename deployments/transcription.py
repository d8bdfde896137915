"""A speech-to-text replica. Spec 4, POST /audio/transcriptions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ray import serve

from contract.transcription.engine import TranscriptionEngine, TranscriptionJob, TranscriptUpdate
from deployments.replica import Replica


@serve.deployment
class Transcriber(Replica[TranscriptionEngine]):
    """One transcription model of the catalogue. Its method is that of `TranscriptionEngine`."""

    async def transcribe(self, job: TranscriptionJob) -> AsyncGenerator[TranscriptUpdate, None]:
        async with aclosing(self.engine.transcribe(job)) as parts:
            async for part in parts:
                yield part
