"""A text-to-speech replica. Spec 4, POST /audio/speech."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ray import serve

from contract.speech.engine import AudioBlock, SpeechEngine, SpeechJob
from deployments.replica import Replica


@serve.deployment
class Speaker(Replica[SpeechEngine]):
    """One speech engine of the catalogue. Its methods are those of `SpeechEngine`."""

    async def speak(self, job: SpeechJob) -> AsyncGenerator[AudioBlock, None]:
        async with aclosing(self.engine.speak(job)) as blocks:
            async for block in blocks:
                yield block

    async def speak_whole(self, job: SpeechJob) -> AudioBlock:
        return await self.engine.speak_whole(job)
