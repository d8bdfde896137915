"""POST /completions: OpenAI's older wire, of plain text."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic_core import to_json
from starlette.responses import Response

from contract.access import Scope
from contract.catalog import ChatModel
from contract.completions import Completion, CompletionReply, CompletionRequest
from contract.limits import JSON_NUMBERS
from deployments.ingress.front.admission import Admitted, admit
from deployments.ingress.wire.chat_streams import AsMade, chat_stream
from deployments.ingress.context import RequestContext
from deployments.ingress.flows import completions
from deployments.ingress.money.idempotency import ACCEPTS_KEY, once
from deployments.ingress.wire.openapi import documented
from deployments.ingress.wire.served import input_cut

router = APIRouter(tags=["chat"])

Writing = Annotated[Admitted, Depends(admit(Scope.CHAT, max_values=JSON_NUMBERS))]


@router.post("/completions", openapi_extra=documented(CompletionRequest, Completion, streams=True, **ACCEPTS_KEY))
async def create_completions(admitted: Writing) -> Response:
    """Continue one or more texts, or score them with `echo` and `logprobs`.

    An `Idempotency-Key` makes the JSON answer repeatable without a second bill; with `stream` it is ignored.
    """
    request = await admitted.body(CompletionRequest)
    context = admitted.context
    model = context.pick(context.service.catalog.chat, request.model)
    if request.stream:
        return await chat_stream(context, completions.stream(context, model, request), AsMade())
    return await once(admitted, partial(_answer, context, model, request))


async def _answer(context: RequestContext, model: ChatModel, request: CompletionRequest) -> Response:
    def render(reply: CompletionReply) -> Response:
        headers = input_cut(context, reply.cut_tokens)
        return Response(to_json(reply.body), headers=headers, media_type="application/json")

    return await completions.write(context, model, request, render)
