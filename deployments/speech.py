"""A text-to-speech replica. Spec 4, POST /audio/speech."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ray import serve

from contract.speech.engine import AudioBlock, SpeechJob
from deployments.replica import Replica


@serve.deployment
class Speaker(Replica):
    """One speech engine of the catalogue."""

    async def speak(self, utterance: SpeechJob) -> AsyncIterator[AudioBlock]:
        """The file as it grows; leaving the iteration frees the engine."""
        blocks = self.adapter.speak(utterance)
        try:
            async for block in blocks:
                yield block
        finally:
            await blocks.aclose()

    async def speak_whole(self, utterance: SpeechJob) -> AudioBlock:
        """The whole file, or none of it."""
        block: AudioBlock = await self.adapter.speak_whole(utterance)
        return block
