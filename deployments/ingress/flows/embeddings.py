"""Turning texts into vectors, billed by tokens. Spec 4 (POST /embeddings)."""

from __future__ import annotations

from contract.catalog import EmbeddingModel
from contract.embeddings import Embeddings, EmbeddingsEngine, EmbeddingsJob
from deployments.ingress.billing import bill
from deployments.ingress.context import RequestContext


async def embed(context: RequestContext, model: EmbeddingModel, job: EmbeddingsJob) -> Embeddings:
    """One vector per text, in order."""
    async with bill(context, model, {"input_tokens": job.most_input_tokens(model)}) as account:
        vectors = await context.engine(model).call(EmbeddingsEngine.embed, job, timings=context.timings)
        await account.settle(input_tokens=vectors.prompt_tokens)
    return vectors
