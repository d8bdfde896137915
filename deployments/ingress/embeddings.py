"""POST /embeddings. Spec 4."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from contract.access import Scope
from contract.catalog import EmbeddingModel
from contract.embeddings import Embeddings, EmbeddingsRequest, dimensions_of, reply
from contract.replies import EmbeddingsReply
from deployments.ingress.admission import Admitted, admit
from deployments.ingress.billing import bill, most_tokens
from deployments.ingress.idempotency import ACCEPTS_KEY, once
from deployments.ingress.openapi import documented

router = APIRouter(tags=["embeddings"])


@router.post("/embeddings", openapi_extra=documented(EmbeddingsRequest, EmbeddingsReply, **ACCEPTS_KEY))
async def embed(admitted: Annotated[Admitted, Depends(admit(Scope.EMBEDDINGS))]) -> Response:
    """Turn texts into vectors."""
    request = await admitted.body(EmbeddingsRequest)
    model = admitted.service.pick(admitted.service.catalog.embeddings, request.model, admitted.caller)
    dimensions = dimensions_of(request, model)
    return await once(admitted, partial(_answer, admitted, model, request, dimensions))


async def _answer(admitted: Admitted, model: EmbeddingModel, request: EmbeddingsRequest, dimensions: int) -> Response:
    texts = list(request.input)
    most = most_tokens(admitted.exchange.body_bytes, len(texts))
    async with bill(admitted, model, {"input_tokens": min(most, model.context_window * len(texts))}) as account:
        engine = admitted.service.engine(model)
        result: Embeddings = await engine.call("embed", texts, dimensions, timings=admitted.exchange.timings)
        await account.settle(input_tokens=result.prompt_tokens)
    body = reply(result, model=model.id, encoding_format=request.encoding_format)
    return Response(body, media_type="application/json")
