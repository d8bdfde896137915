"""POST /rerank, and the same at /v2/rerank, where Cohere's clients look for it."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from contract.access import Scope
from contract.rerank import Ranking as Scores
from contract.rerank import RerankEngine, RerankJob, RerankReply, RerankRequest, reply
from deployments.ingress.flows.encoders import encode
from deployments.ingress.front.admission import Admitted, admit
from deployments.ingress.wire.idempotency import ACCEPTS_KEY, once
from deployments.ingress.wire.openapi import documented

router = APIRouter(tags=["rerank"])
versioned_router = APIRouter(tags=["rerank"])
"""Its paths have a version of their own."""

Ranking = Annotated[Admitted, Depends(admit(Scope.RERANK))]


@versioned_router.post("/v2/rerank", openapi_extra=documented(RerankRequest, RerankReply, **ACCEPTS_KEY))
@router.post("/rerank", openapi_extra=documented(RerankRequest, RerankReply, **ACCEPTS_KEY))
async def rank(admitted: Ranking) -> Response:
    """Order documents by their relevance to a query."""
    request = await admitted.body(RerankRequest)
    context = admitted.context
    model = context.pick(context.service.catalog.rerank, request.model)

    async def render(scores: Scores) -> Response:
        return JSONResponse(reply(scores, request, model=model.id, reply_id=context.exchange.request_id))

    job = RerankJob(request.query, request.documents)
    return await once(admitted, partial(encode, context, model, job, RerankEngine.rerank, render))
