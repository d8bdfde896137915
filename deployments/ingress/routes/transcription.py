"""POST /audio/transcriptions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from contract.access import Scope
from contract.body import validated
from contract.errors import INVALID_REQUEST, UNSUPPORTED_MEDIA_TYPE
from contract.limits import RECORDING_BODY_BYTES, RECORDING_FORM_BYTES
from contract.transcription.request import TranscriptionPlan, TranscriptionRequest, fields
from contract.transcription.transcript import PLAIN_TYPES, Transcript, TranscriptionReply, delta, done, plain, reply
from deployments.ingress.context import RequestContext, exchange_of
from deployments.ingress.flows import transcription
from deployments.ingress.flows.transcription import TranscriptionAnswer
from deployments.ingress.front.admission import Admitted, admit, refuse_other_media
from deployments.ingress.wire.events import enable_queue_status, event_stream
from deployments.ingress.wire.forms import read_form
from deployments.ingress.wire.idempotency import ACCEPTS_KEY, once
from deployments.ingress.wire.openapi import documented_form
from deployments.ingress.wire.replies import served_headers
from state.idempotency import HEADER

router = APIRouter(tags=["transcription"])

Transcribing = Annotated[Admitted, Depends(admit(Scope.TRANSCRIBE, RECORDING_BODY_BYTES + RECORDING_FORM_BYTES))]


@router.post(
    "/audio/transcriptions",
    openapi_extra=documented_form(
        TranscriptionRequest, TranscriptionReply, file="file", texts=PLAIN_TYPES.values(), **ACCEPTS_KEY
    ),
)
async def transcribe(admitted: Transcribing) -> Response:
    """Write a recording down: a `file` of a form, or what was uploaded under `upload_id`.

    With `stream` the text comes as events while the recording is transcribed.
    """
    request, file = await _request(admitted)
    context = admitted.context
    plan = transcription.prepare(context, request)
    headers = served_headers(context, plan.model.runtime, request.model)
    if request.stream:
        enable_queue_status(admitted)
        return await event_stream(context.exchange, _events(context, plan, file), headers)
    return await once(admitted, partial(_answer, context, plan, file, headers))


async def _request(admitted: Admitted) -> tuple[TranscriptionRequest, bytes | None]:
    """Request, with the file of a form. Exactly one of `file` and `upload_id` is there."""
    kind = admitted.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    refuse_other_media(admitted.request, takes_form=True)
    if kind == "multipart/form-data":
        form = await read_form(admitted.request, exchange_of(admitted.request.scope).hold(), "file")
        if HEADER in admitted.request.headers:
            admitted.body_sha256 = await asyncio.to_thread(form.digest)
        request, file = validated(TranscriptionRequest, fields(form.pairs)), form.file
    elif kind == "application/json":
        request, file = await admitted.body(TranscriptionRequest), None
    else:
        raise UNSUPPORTED_MEDIA_TYPE(
            f"the body has the type `{kind[:60]}`; send multipart/form-data with `file`, or JSON with `upload_id`"
        )
    if file is None and request.upload_id is None:
        raise INVALID_REQUEST("neither `file` nor `upload_id` was sent; send exactly one of them", param="file")
    if file is not None and request.upload_id is not None:
        raise INVALID_REQUEST("both `file` and `upload_id` were sent; send exactly one of them", param="upload_id")
    return request, file


async def _answer(
    context: RequestContext, plan: TranscriptionPlan, file: bytes | None, headers: dict[str, str]
) -> Response:
    answer = TranscriptionAnswer(Transcript(plan))
    async with transcription.transcribe(context, plan, file, answer) as texts:
        async for _ in texts:
            pass
        if plan.request.response_format in ("json", "verbose_json"):
            return JSONResponse(reply(answer.transcript, answer.formatted), headers=headers)
        text, media_type = plain(answer.transcript, answer.formatted)
        return Response(text, headers=headers, media_type=media_type)


async def _events(context: RequestContext, plan: TranscriptionPlan, file: bytes | None) -> AsyncGenerator[bytes, None]:
    answer = TranscriptionAnswer(Transcript(plan))
    async with transcription.transcribe(context, plan, file, answer) as texts:
        async for text in texts:
            yield delta(text)
        end = done(answer.transcript, answer.formatted)
    yield end
