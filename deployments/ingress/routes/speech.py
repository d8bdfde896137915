"""POST /audio/speech, and its verification."""

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
from contract.speech.verdict import VERDICT_RETRY_S, SpeechVerdictReply
from contract.wires import event
from deployments.ingress.flows import speech, verdicts
from deployments.ingress.flows.verdicts import SpeechVerification
from deployments.ingress.front.admission import Admitted, admit
from deployments.ingress.wire.events import enable_queue_status, event_stream
from deployments.ingress.wire.openapi import documented, documented_audio
from deployments.ingress.wire.replies import byte_stream, served_headers

router = APIRouter(tags=["speech"])

Speaking = Annotated[Admitted, Depends(admit(Scope.SPEECH, SPEECH_BODY_BYTES))]
Hearing = Annotated[Admitted, Depends(admit(Scope.SPEECH))]


@router.post("/audio/speech", openapi_extra=documented_audio(SpeechRequest))
async def speak(admitted: Speaking) -> Response:
    """Speak a text: the bytes of an audio file as they are made, or with `stream_format: "sse"` as events."""
    request = await admitted.body(SpeechRequest)
    prepared = await speech.prepare(admitted.context, request)
    choice = prepared.choice
    headers = {"X-Voice-Provider": choice.model.provider, "X-Voice": choice.spoken_as}
    if choice.model.selects_language:
        headers["X-Voice-Language"] = choice.language
    headers |= served_headers(admitted.context, prepared.runtime, request.model)
    listening = None if request.verify == "off" else SpeechVerification(admitted.context, prepared)
    blocks = listening.blocks(headers) if listening else speech.blocks(admitted.context, prepared)
    if request.stream_format == "sse":
        enable_queue_status(admitted)
        return await event_stream(admitted.context.exchange, _events(blocks, listening), headers)
    return await byte_stream(_bytes(blocks), MEDIA_TYPES[choice.format], headers)


@router.get("/audio/speech/{request_id}/verdict", openapi_extra=documented(None, SpeechVerdictReply))
async def get_verdict(admitted: Hearing, request_id: str) -> Response:
    """Verdict on speech that was requested with `verify`: for ten minutes, by the reply's `x-request-id`.

    202 with `Retry-After` and an empty object while it is spoken or listened to.
    """
    text = await verdicts.find(admitted.context, request_id)
    if not text:
        return Response("{}", 202, {"retry-after": str(VERDICT_RETRY_S)}, "application/json")
    return Response(text, media_type="application/json")


async def _bytes(blocks: AsyncGenerator[AudioBlock, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(blocks):
        async for block in blocks:
            yield block.data


async def _events(
    blocks: AsyncGenerator[AudioBlock, None], listening: SpeechVerification | None
) -> AsyncGenerator[bytes, None]:
    """OpenAI's events: `speech.audio.delta` with base64, then `speech.audio.done`; our own `speech.audio.verdict`.

    Its `usage` counts tokens, of which there are none; what is billed stands beside them.
    """
    block = AudioBlock(b"", 0, 0.0)
    async with aclosing(blocks):
        async for block in blocks:
            yield event({"type": "speech.audio.delta", "audio": base64.b64encode(block.data).decode()})
    usage: dict[str, float] = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    usage |= {"characters": block.characters, "seconds": round(block.seconds, 3)}
    yield event({"type": "speech.audio.done", "usage": usage})
    if listening:
        yield event({"type": "speech.audio.verdict", **(await listening.verdict()).reply()})
