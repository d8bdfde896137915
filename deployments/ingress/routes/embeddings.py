"""POST /embeddings."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from contract.access import Scope
from contract.catalog import EmbeddingModel
from contract.embeddings import (
    Embeddings,
    EmbeddingsEngine,
    EmbeddingsJob,
    EmbeddingsReply,
    EmbeddingsRequest,
    EncodingFormat,
    job_of,
    reply,
    reply_bytes,
)
from contract.limits import JSON_NUMBERS, REPLY_PIECE_BYTES
from deployments.ingress.context import RequestContext
from deployments.ingress.flows.encoders import encode
from deployments.ingress.front.admission import Admitted, admit
from deployments.ingress.wire.idempotency import ACCEPTS_KEY, once
from deployments.ingress.wire.openapi import documented

router = APIRouter(tags=["embeddings"])

Embedding = Annotated[Admitted, Depends(admit(Scope.EMBEDDINGS, max_values=JSON_NUMBERS))]


@router.post("/embeddings", openapi_extra=documented(EmbeddingsRequest, EmbeddingsReply, **ACCEPTS_KEY))
async def create_embeddings(admitted: Embedding) -> Response:
    """Turn texts into vectors."""
    request = await admitted.body(EmbeddingsRequest)
    context = admitted.context
    model = context.pick(context.service.catalog.embeddings, request.model)
    job = job_of(request, model)
    most_bytes = reply_bytes(job, model, request.encoding_format)
    return await once(admitted, partial(_answer, context, model, job, request.encoding_format, most_bytes))


async def _answer(
    context: RequestContext, model: EmbeddingModel, job: EmbeddingsJob, encoding_format: EncodingFormat, most_bytes: int
) -> Response:
    async def render(vectors: Embeddings) -> bytes:
        joined, since = [], 0
        for part in reply(vectors, model=model.id, encoding_format=encoding_format):
            joined.append(part)
            since += len(part)
            if since > REPLY_PIECE_BYTES:
                # Making a long reply takes as long as a hundred steps of other requests, which come between.
                await asyncio.sleep(0)
                since = 0
        return b"".join(joined)

    with context.memory_for(most_bytes):
        body = await encode(context, model, job, EmbeddingsEngine.embed, render)
    return Response(body, media_type="application/json")
