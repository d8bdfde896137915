"""POST /completions: OpenAI's older wire, of plain text."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic_core import to_json
from starlette.responses import Response

from contract.access import Scope
from contract.catalog import ChatModel
from contract.chat.engine import ChatBatch
from contract.completions import Completion, CompletionRequest
from contract.events import DONE
from deployments.ingress.admission import Admitted, admit
from deployments.ingress.context import RequestContext
from deployments.ingress.events import event_stream
from deployments.ingress.flows import completions
from deployments.ingress.idempotency import ACCEPTS_KEY, once
from deployments.ingress.openapi import documented
from deployments.ingress.served import input_cut

router = APIRouter(tags=["chat"])

Writing = Annotated[Admitted, Depends(admit(Scope.CHAT))]


@router.post("/completions", openapi_extra=documented(CompletionRequest, Completion, streams=True, **ACCEPTS_KEY))
async def create_completions(admitted: Writing) -> Response:
    """Continue one or more texts, or score them with `echo` and `logprobs`.

    An `Idempotency-Key` makes the JSON answer repeatable without a second bill; with `stream` it is ignored.
    """
    request = await admitted.body(CompletionRequest)
    context = admitted.context
    model = context.pick(context.service.catalog.chat, request.model)
    if request.stream:
        headers: dict[str, str] = {}
        return await event_stream(_events(context, completions.stream(context, model, request), headers), headers)
    return await once(admitted, partial(_answer, context, model, request))


async def _answer(context: RequestContext, model: ChatModel, request: CompletionRequest) -> Response:
    reply = await completions.write(context, model, request)
    return Response(to_json(reply.body), headers=input_cut(context, reply.cut_tokens), media_type="application/json")


async def _events(
    context: RequestContext, batches: AsyncGenerator[ChatBatch, None], headers: dict[str, str]
) -> AsyncGenerator[bytes, None]:
    """What is sent; `headers` are complete when the first event is, which they are sent with."""
    async with aclosing(batches):
        async for batch in batches:
            headers |= input_cut(context, batch.cut_tokens)
            if batch.events:
                yield batch.events
    yield DONE
