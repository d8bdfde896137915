"""Vectors of texts, and scores of documents against a query: one call of an encoder, billed by tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from contract.embeddings import Embeddings, EmbeddingsJob
from contract.rerank import Ranking, RerankJob
from deployments.ingress.context import RequestContext

J = TypeVar("J", EmbeddingsJob, RerankJob)
A = TypeVar("A", Embeddings, Ranking)
R = TypeVar("R")


async def encode(
    context: RequestContext,
    model: Any,
    job: J,
    method: Callable[[Any, J], Awaitable[A]],
    render: Callable[[A], Awaitable[R]],
) -> R:
    """The answer of `method` to a `job` for `model`, as `render` makes a reply of it; what that raises is not billed.

    It has one vector for each text, or one score for each document, in order.
    """
    job, estimate = replace(job, owner=context.owner), {"input_tokens": job.most_input_tokens(model)}
    async with await context.bill(
        model, estimate, begun=lambda: {"input_tokens": job.likely_input_tokens(model)}
    ) as bill:
        answer = await context.engine(model).call(method, job, context=context.call)
        rendered = await render(answer)
        await bill.settle(input_tokens=answer.prompt_tokens)
    return rendered
