"""POST /chat/completions and /completions, OpenAI's older wires; POST /tokenize and /detokenize, in vLLM's schema."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic_core import to_json
from starlette.responses import JSONResponse, Response

from contract.access import Scope
from contract.chat.engine import ChatCompletion, ChatEngine, ChatReply
from contract.chat.request import ChatRequest
from contract.completions import Completion, CompletionJob, CompletionReply, CompletionRequest, check_suffix
from contract.limits import CHAT_BODY_BYTES, JSON_NUMBERS
from contract.tokens import (
    DetokenizeJob,
    DetokenizeReply,
    DetokenizeRequest,
    TokenizeBody,
    TokenizeMessages,
    TokenizeReply,
)
from deployments.ingress.flows import chat
from deployments.ingress.front.admission import Admitted, admit
from deployments.ingress.wire.events import PassThrough, chat_stream, enable_queue_status
from deployments.ingress.wire.idempotency import ACCEPTS_KEY, once
from deployments.ingress.wire.openapi import documented
from deployments.ingress.wire.replies import chat_headers

router = APIRouter(tags=["chat"])
tokens_router = APIRouter(tags=["tokens"])

Chatting = Annotated[Admitted, Depends(admit(Scope.CHAT, CHAT_BODY_BYTES))]
WithIds = Annotated[Admitted, Depends(admit(Scope.CHAT, max_values=JSON_NUMBERS))]
Counting = Annotated[Admitted, Depends(admit(Scope.CHAT))]


@router.post("/chat/completions", openapi_extra=documented(ChatRequest, ChatCompletion, streams=True, **ACCEPTS_KEY))
async def complete(admitted: Chatting) -> Response:
    """Answer a conversation, as one JSON object or as a stream of server-sent events.

    An `Idempotency-Key` makes the JSON answer repeatable without a second bill; with `stream` it is ignored.
    """
    request = await admitted.body(ChatRequest)
    context = admitted.context
    model = context.pick(context.service.catalog.chat, request.model)
    if request.stream:
        enable_queue_status(admitted)
        return await chat_stream(
            context, chat.stream(context, model, request), PassThrough(), left_out=request.left_out
        )

    def render(reply: ChatReply) -> Response:
        return JSONResponse(reply.body, headers=chat_headers(context, reply.cut_tokens, request.left_out))

    return await once(admitted, partial(chat.complete, context, model, chat.job_of(context, model, request), render))


@router.post("/completions", openapi_extra=documented(CompletionRequest, Completion, streams=True, **ACCEPTS_KEY))
async def create_completions(admitted: WithIds) -> Response:
    """Continue one or more texts, or score them with `echo` and `logprobs`.

    An `Idempotency-Key` makes the JSON answer repeatable without a second bill; with `stream` it is ignored.
    """
    request = await admitted.body(CompletionRequest)
    context = admitted.context
    model = context.pick(context.service.catalog.chat, request.model)
    check_suffix(request, model)
    job = CompletionJob(request, context.owner)
    if request.stream:
        enable_queue_status(admitted)
        batches = chat.streamed(context, model, job, ChatEngine.write_stream)
        return await chat_stream(context, batches, PassThrough())

    def render(reply: CompletionReply) -> Response:
        headers = chat_headers(context, reply.cut_tokens)
        return Response(to_json(reply.body), headers=headers, media_type="application/json")

    return await once(admitted, partial(chat.whole, context, model, job, ChatEngine.write, render))


@tokens_router.post("/tokenize", openapi_extra=documented(TokenizeBody, TokenizeReply))
async def tokenize(admitted: Counting) -> Response:
    """The tokens of a text, or of a conversation as a chat model reads it. Costs nothing."""
    request = (await admitted.body(TokenizeBody)).root
    context = admitted.context
    model = context.pick(context.service.catalog.chat, request.model)
    tokenized = await chat.tokenize(context, model, request.job())
    reply = TokenizeReply(count=len(tokenized.ids), max_model_len=model.context_window, tokens=tokenized.ids)
    if tokenized.strings is not None:
        reply["token_strs"] = tokenized.strings
    left_out = request.left_out if isinstance(request, TokenizeMessages) else ()
    return Response(to_json(reply), media_type="application/json", headers=chat_headers(context, 0, left_out))


@tokens_router.post("/detokenize", openapi_extra=documented(DetokenizeRequest, DetokenizeReply))
async def detokenize(admitted: WithIds) -> Response:
    """The text that some tokens of a chat model spell. Costs nothing."""
    request = await admitted.body(DetokenizeRequest)
    context = admitted.context
    model = context.pick(context.service.catalog.chat, request.model)
    text = await chat.detokenize(context, model, DetokenizeJob(tuple(request.tokens)))
    return JSONResponse(DetokenizeReply(prompt=text))
