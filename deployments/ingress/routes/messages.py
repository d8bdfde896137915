"""POST /messages and POST /messages/count_tokens: chat, on Anthropic's wire."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from contract.access import Scope
from contract.chat.engine import ChatReply
from contract.limits import CHAT_BODY_BYTES
from contract.messages.reply import PING, MessageEvents, MessageReply, TokenCount, failed, message
from contract.messages.request import Conversation, MessagesRequest
from contract.messages.translation import chat_request
from contract.wires import MessagesErrorReply
from deployments.ingress.flows import chat
from deployments.ingress.front.admission import Admitted, admit
from deployments.ingress.wire.events import StreamFormat, chat_stream
from deployments.ingress.wire.idempotency import ACCEPTS_KEY, once
from deployments.ingress.wire.openapi import documented
from deployments.ingress.wire.replies import chat_headers

router = APIRouter(tags=["messages"])

Writing = Annotated[Admitted, Depends(admit(Scope.CHAT, CHAT_BODY_BYTES, takes_api_key_header=True))]

documented_here = partial(documented, error=MessagesErrorReply, takes_api_key_header=True)


@router.post("/messages", openapi_extra=documented_here(MessagesRequest, MessageReply, streams=True, **ACCEPTS_KEY))
async def create_message(admitted: Writing) -> Response:
    """Answer a conversation in Anthropic's shape, as one JSON object or as a stream of server-sent events.

    An `Idempotency-Key` makes the JSON answer repeatable without a second bill; with `stream` it is ignored.
    """
    body = await admitted.body(MessagesRequest)
    context, request = admitted.context, chat_request(body)
    model = context.pick(context.service.catalog.chat, body.model)
    is_silent = body.max_tokens == 0
    if body.stream:
        stream_format = StreamFormat(PING, partial(failed, request_id=context.exchange.request_id))
        batches = chat.stream(context, model, request)
        return await chat_stream(context, batches, MessageEvents(model.id, is_silent), stream_format, body.left_out)

    def render(reply: ChatReply) -> Response:
        headers = chat_headers(context, reply.cut_tokens, body.left_out)
        return JSONResponse(message(reply, is_silent), headers=headers)

    return await once(admitted, partial(chat.complete, context, model, chat.job_of(context, model, request), render))


@router.post("/messages/count_tokens", openapi_extra=documented_here(Conversation, TokenCount))
async def count_tokens(admitted: Writing) -> Response:
    """Count the tokens of a conversation as `POST /messages` would read it. Costs nothing."""
    body = await admitted.body(Conversation)
    context, request = admitted.context, chat_request(body)
    model = context.pick(context.service.catalog.chat, body.model)
    counted: TokenCount = {"input_tokens": await chat.count(context, model, request)}
    return JSONResponse(counted, headers=chat_headers(context, 0, body.left_out))
