"""Turning texts into vectors, billed by tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from contract.catalog import EmbeddingModel
from contract.embeddings import Embeddings, EmbeddingsEngine, EmbeddingsJob
from deployments.ingress.context import RequestContext

R = TypeVar("R")


async def embed(
    context: RequestContext, model: EmbeddingModel, job: EmbeddingsJob, render: Callable[[Embeddings], Awaitable[R]]
) -> R:
    """One vector per text, in order, as `render` makes a reply of them; what that raises is not billed."""
    job, estimate = replace(job, owner=context.owner), {"input_tokens": job.most_input_tokens(model)}
    async with await context.bill(
        model, estimate, begun=lambda: {"input_tokens": job.likely_input_tokens(model)}
    ) as account:
        vectors = await context.engine(model).call(EmbeddingsEngine.embed, job, context=context.call)
        rendered = await render(vectors)
        await account.settle(input_tokens=vectors.prompt_tokens)
    return rendered
