"""POST /rerank. Spec 4."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from contract.access import Scope
from contract.catalog import RerankModel
from contract.replies import RerankReply
from contract.rerank import Ranking, RerankRequest, reply
from deployments.ingress.admission import Admitted, admit
from deployments.ingress.billing import bill, most_tokens
from deployments.ingress.idempotency import ACCEPTS_KEY, once
from deployments.ingress.openapi import documented

router = APIRouter(tags=["rerank"])


@router.post("/rerank", openapi_extra=documented(RerankRequest, RerankReply, **ACCEPTS_KEY))
async def rerank(admitted: Annotated[Admitted, Depends(admit(Scope.RERANK))]) -> Response:
    """Order documents by their relevance to a query."""
    request = await admitted.body(RerankRequest)
    model = admitted.service.pick(admitted.service.catalog.rerank, request.model, admitted.caller)
    return await once(admitted, partial(_answer, admitted, model, request))


async def _answer(admitted: Admitted, model: RerankModel, request: RerankRequest) -> Response:
    documents = list(request.documents)
    queries_bytes = len(request.query.encode()) * len(documents)
    most = most_tokens(admitted.exchange.body_bytes + queries_bytes, 2 * len(documents))
    async with bill(admitted, model, {"input_tokens": min(most, 2 * model.context_window * len(documents))}) as account:
        engine = admitted.service.engine(model)
        ranking: Ranking = await engine.call("rerank", request.query, documents, timings=admitted.exchange.timings)
        await account.settle(input_tokens=ranking.prompt_tokens)
    return JSONResponse(reply(ranking, request, model=model.id, reply_id=admitted.exchange.request_id))
