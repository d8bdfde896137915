"""POST /responses: OpenAI's newer wire over chat. Nothing is kept between requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from contract.access import Scope
from contract.catalog import ChatModel
from contract.chat.engine import ChatBatch, ChatJob, ChatReply
from contract.limits import CHAT_BODY_BYTES
from contract.responses.reply import ResponseEvents, ResponseHead, ResponseReply, whole
from contract.responses.request import ResponsesRequest
from contract.responses.tools import translate_errors
from deployments.ingress.context import RequestContext, exchange_of
from deployments.ingress.flows import chat
from deployments.ingress.front.admission import Admitted, admit
from deployments.ingress.wire.events import StreamFormat, chat_stream, enable_queue_status
from deployments.ingress.wire.idempotency import ACCEPTS_KEY, once
from deployments.ingress.wire.openapi import documented
from deployments.ingress.wire.replies import chat_headers

router = APIRouter(tags=["chat"])

Responding = Annotated[Admitted, Depends(admit(Scope.CHAT, CHAT_BODY_BYTES))]


@router.post("/responses", openapi_extra=documented(ResponsesRequest, ResponseReply, streams=True, **ACCEPTS_KEY))
async def respond(admitted: Responding) -> Response:
    """Answer a conversation in the shape of OpenAI's Responses API, whole or as a stream of server-sent events.

    Nothing is kept: the conversation comes with each request. An `Idempotency-Key` makes the JSON answer repeatable
    without a second bill; with `stream` it is ignored.
    """
    request = await admitted.body(ResponsesRequest)
    context = admitted.context
    model = context.pick(context.service.catalog.chat, request.model)
    head = ResponseHead(request, context.exchange.request_id, int(context.service.state.clock()), model.id)
    if request.stream:
        enable_queue_status(admitted)
        events = ResponseEvents(head, exchange_of(admitted.request.scope).hold())
        stream_format = StreamFormat(failed=events.failed, queued=events.queued)
        return await chat_stream(context, _batches(context, model, head), events, stream_format, request.left_out)
    with translate_errors(request.places):
        job = chat.job_of(context, model, request.chat)
    return await once(admitted, partial(_answer, context, model, job, head))


async def _answer(context: RequestContext, model: ChatModel, job: ChatJob, head: ResponseHead) -> Response:
    def render(reply: ChatReply) -> Response:
        return JSONResponse(whole(head, reply), headers=chat_headers(context, reply.cut_tokens, head.request.left_out))

    with translate_errors(head.request.places):
        await _check_length(context, model, head)
        return await chat.complete(context, model, job, render)


async def _batches(context: RequestContext, model: ChatModel, head: ResponseHead) -> AsyncGenerator[ChatBatch, None]:
    with translate_errors(head.request.places):
        await _check_length(context, model, head)
        async with aclosing(chat.stream(context, model, head.request.chat)) as batches:
            async for batch in batches:
                yield batch


async def _check_length(context: RequestContext, model: ChatModel, head: ResponseHead) -> None:
    """Counts before anything is billed, and only for clients who say that nothing may be cut."""
    if head.request.truncation == "disabled":
        await chat.refuse_longer(context, model, head.request.chat)
