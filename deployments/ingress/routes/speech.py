"""POST /audio/speech."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from contract.access import Scope
from contract.limits import SPEECH_BODY_BYTES
from contract.speech.engine import AudioBlock
from contract.speech.request import MEDIA_TYPES, SpeechRequest
from contract.speech.routing import SpeechRoute
from contract.wires import event
from deployments.ingress.flows import speech
from deployments.ingress.front.admission import Admitted, admit
from deployments.ingress.wire.events import event_stream, tell_of_wait
from deployments.ingress.wire.openapi import documented_audio
from deployments.ingress.wire.replies import byte_stream, served_headers

router = APIRouter(tags=["speech"])

Speaking = Annotated[Admitted, Depends(admit(Scope.SPEECH, SPEECH_BODY_BYTES))]


@router.post("/audio/speech", openapi_extra=documented_audio(SpeechRequest))
async def speak(admitted: Speaking) -> Response:
    """Speak a text: the bytes of an audio file as they are made, or with `stream_format: "sse"` as events."""
    request = await admitted.body(SpeechRequest)
    prepared = await speech.prepare(admitted.context, request)
    blocks = speech.blocks(admitted.context, prepared)
    headers = _headers(admitted, request, prepared.choice)
    if request.stream_format == "sse":
        tell_of_wait(admitted)
        return await event_stream(admitted.context.trace, _events(blocks), headers)
    return await byte_stream(_bytes(blocks), MEDIA_TYPES[prepared.choice.format], headers)


async def _bytes(blocks: AsyncGenerator[AudioBlock, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(blocks):
        async for block in blocks:
            yield block.data


async def _events(blocks: AsyncGenerator[AudioBlock, None]) -> AsyncGenerator[bytes, None]:
    """OpenAI's events: `speech.audio.delta` with base64, then `speech.audio.done`.

    Its `usage` counts tokens, of which there are none; what is billed stands beside them.
    """
    block = AudioBlock(b"", 0, 0.0)
    async with aclosing(blocks):
        async for block in blocks:
            yield event({"type": "speech.audio.delta", "audio": base64.b64encode(block.data).decode()})
    usage: dict[str, float] = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    usage |= {"characters": block.characters, "seconds": round(block.seconds, 3)}
    yield event({"type": "speech.audio.done", "usage": usage})


def _headers(admitted: Admitted, request: SpeechRequest, choice: SpeechRoute) -> dict[str, str]:
    """Who spoke, as what, and what truly ran."""
    headers = {"X-Voice-Provider": choice.model.provider, "X-Voice": choice.spoken_as}
    if choice.model.selects_language:
        headers["X-Voice-Language"] = choice.language
    has_voice = bool(choice.voice or request.reference_audio_b64)
    ran = choice.model.speaker_of(choice.language, has_voice=has_voice).runtime
    return headers | served_headers(admitted.context, ran, request.model)
