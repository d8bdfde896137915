"""POST /tokenize and POST /detokenize, in vLLM's schema."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic_core import to_json
from starlette.responses import JSONResponse, Response

from contract.access import Scope
from contract.limits import JSON_NUMBERS
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
from deployments.ingress.wire.openapi import documented
from deployments.ingress.wire.replies import chat_headers

router = APIRouter(tags=["tokens"])

Counting = Annotated[Admitted, Depends(admit(Scope.CHAT))]
Spelling = Annotated[Admitted, Depends(admit(Scope.CHAT, max_values=JSON_NUMBERS))]


@router.post("/tokenize", openapi_extra=documented(TokenizeBody, TokenizeReply))
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


@router.post("/detokenize", openapi_extra=documented(DetokenizeRequest, DetokenizeReply))
async def detokenize(admitted: Spelling) -> Response:
    """The text that some tokens of a chat model spell. Costs nothing."""
    request = await admitted.body(DetokenizeRequest)
    context = admitted.context
    model = context.pick(context.service.catalog.chat, request.model)
    text = await chat.detokenize(context, model, DetokenizeJob(tuple(request.tokens)))
    return JSONResponse(DetokenizeReply(prompt=text))
