"""POST /chat/completions. Spec 4."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated

from contract.replies import ChatCompletionReply
from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from contract.access import Scope
from contract.catalog import ChatModel
from contract.chat.engine import ChatBatch, ChatReply
from contract.chat.request import ChatRequest
from contract.limits import CHAT_BODY_BYTES, STREAM_SLICE_OUTPUT_TOKENS
from deployments.ingress.admission import Admitted, admit
from deployments.ingress.billing import bill, most_tokens
from deployments.ingress.events import event_stream
from deployments.ingress.idempotency import ACCEPTS_KEY, once
from deployments.ingress.openapi import documented

router = APIRouter(tags=["chat"])

Chatting = Annotated[Admitted, Depends(admit(Scope.CHAT, CHAT_BODY_BYTES))]


@router.post(
    "/chat/completions", openapi_extra=documented(ChatRequest, ChatCompletionReply, streams=True, **ACCEPTS_KEY)
)
async def complete(admitted: Chatting) -> Response:
    """Answer a conversation, as one JSON object or as a stream of server-sent events.

    An `Idempotency-Key` makes the JSON answer repeatable without a second bill; with `stream` it is ignored.
    """
    request = await admitted.body(ChatRequest)
    model = admitted.service.pick(admitted.service.catalog.chat, request.model, admitted.caller)
    if request.stream:
        return await event_stream(_stream(admitted, model, request))
    return await once(admitted, partial(_answer, admitted, model, request))


async def _answer(admitted: Admitted, model: ChatModel, request: ChatRequest) -> Response:
    async with bill(admitted, model, _estimate(admitted, model, request, _most_output(model, request))) as account:
        engine = admitted.service.engine(model)
        reply: ChatReply = await engine.call("complete", request, _salt(admitted), timings=admitted.exchange.timings)
        await account.settle(input_tokens=reply.prompt_tokens, output_tokens=reply.completion_tokens)
    return JSONResponse(reply.body)


async def _stream(admitted: Admitted, model: ChatModel, request: ChatRequest) -> AsyncGenerator[bytes, None]:
    """The events of an answer. Whoever leaves early pays for what was produced until then."""
    first_slice = min(STREAM_SLICE_OUTPUT_TOKENS, _most_output(model, request))
    async with (
        admitted.service.state.rates.stream(admitted.caller),
        bill(admitted, model, _estimate(admitted, model, request, first_slice)) as account,
    ):
        engine = admitted.service.engine(model)
        batches = engine.stream("stream", request, _salt(admitted), timings=admitted.exchange.timings)
        try:
            batch: ChatBatch
            async for batch in batches:
                await account.progress(input_tokens=batch.prompt_tokens, output_tokens=batch.completion_tokens)
                yield batch.events
        finally:
            await batches.aclose()
        await account.close(None)
        yield b"data: [DONE]\n\n"


def _estimate(admitted: Admitted, model: ChatModel, request: ChatRequest, output_tokens: int) -> dict[str, int]:
    most = most_tokens(admitted.exchange.body_bytes, len(request.messages))
    return {"input_tokens": min(most, model.context_window), "output_tokens": output_tokens}


def _most_output(model: ChatModel, request: ChatRequest) -> int:
    """Output tokens of all choices together, at most."""
    return min(request.budget or model.context_window, model.context_window) * (request.n or 1)


def _salt(admitted: Admitted) -> str:
    """Keeps the prefix caches of organisations apart: no one can time what another has asked."""
    return f"org-{admitted.caller.org_id}"
