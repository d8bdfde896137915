"""POST /chat/completions. Spec 4."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from contract.access import Scope
from contract.catalog import ChatModel
from contract.chat.engine import ChatCompletion, ChatReply
from contract.chat.request import ChatRequest
from contract.limits import CHAT_BODY_BYTES
from deployments.ingress.front.admission import Admitted, admit
from deployments.ingress.wire.chat_streams import AsMade, chat_stream
from deployments.ingress.context import RequestContext
from deployments.ingress.flows import chat
from deployments.ingress.money.idempotency import ACCEPTS_KEY, once
from deployments.ingress.wire.openapi import documented
from deployments.ingress.wire.served import ignored, input_cut

router = APIRouter(tags=["chat"])

Chatting = Annotated[Admitted, Depends(admit(Scope.CHAT, CHAT_BODY_BYTES))]


@router.post("/chat/completions", openapi_extra=documented(ChatRequest, ChatCompletion, streams=True, **ACCEPTS_KEY))
async def complete(admitted: Chatting) -> Response:
    """Answer a conversation, as one JSON object or as a stream of server-sent events.

    An `Idempotency-Key` makes the JSON answer repeatable without a second bill; with `stream` it is ignored.
    """
    request = await admitted.body(ChatRequest)
    context = admitted.context
    model = context.pick(context.service.catalog.chat, request.model)
    if request.stream:
        return await chat_stream(context, chat.stream(context, model, request), AsMade(), left_out=request.left_out)
    return await once(admitted, partial(_answer, context, model, request))


async def _answer(context: RequestContext, model: ChatModel, request: ChatRequest) -> Response:
    def render(reply: ChatReply) -> Response:
        return JSONResponse(
            reply.body, headers=input_cut(context, reply.cut_tokens) | ignored(context, request.left_out)
        )

    return await chat.complete(context, model, request, render)
