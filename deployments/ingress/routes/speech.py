"""POST /audio/speech, and what our ears made of it."""

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
from deployments.ingress.flows.speech import PreparedSpeech
from deployments.ingress.flows.verdicts import Listening
from deployments.ingress.front.admission import Admitted, admit
from deployments.ingress.wire.events import event_stream, tell_of_wait
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
    headers = _headers(admitted, request, prepared)
    listening = None if request.verify == "off" else Listening(admitted.context, prepared)
    blocks = listening.blocks(headers) if listening else speech.blocks(admitted.context, prepared)
    if request.stream_format == "sse":
        tell_of_wait(admitted)
        return await event_stream(admitted.context.trace, _events(blocks, listening), headers)
    return await byte_stream(_bytes(blocks), MEDIA_TYPES[prepared.choice.format], headers)


@router.get("/audio/speech/{request_id}/verdict", openapi_extra=documented(None, SpeechVerdictReply))
async def get_verdict(admitted: Hearing, request_id: str) -> Response:
    """What our ears heard of speech that was asked for with `verify`: for ten minutes, by the reply's `x-request-id`.

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


async def _events(blocks: AsyncGenerator[AudioBlock, None], listening: Listening | None) -> AsyncGenerator[bytes, None]:
    """OpenAI's events: `speech.audio.delta` with base64, then `speech.audio.done`; ours: `speech.audio.verdict`.

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


def _headers(admitted: Admitted, request: SpeechRequest, prepared: PreparedSpeech) -> dict[str, str]:
    """Who spoke, as what, and what truly ran."""
    choice = prepared.choice
    headers = {"X-Voice-Provider": choice.model.provider, "X-Voice": choice.spoken_as}
    if choice.model.selects_language:
        headers["X-Voice-Language"] = choice.language
    return headers | served_headers(admitted.context, prepared.runtime, request.model)
