"""Scoring documents against a query, billed by tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from contract.catalog import RerankModel
from contract.rerank import Ranking, RerankEngine, RerankJob
from deployments.ingress.context import RequestContext

R = TypeVar("R")


async def rerank(context: RequestContext, model: RerankModel, job: RerankJob, render: Callable[[Ranking], R]) -> R:
    """One score per document, in order, as `render` makes a reply of them; what that raises is not billed."""
    job, estimate = replace(job, owner=context.owner), {"input_tokens": job.most_input_tokens(model)}
    async with await context.bill(
        model, estimate, begun=lambda: {"input_tokens": job.likely_input_tokens(model)}
    ) as account:
        ranking = await context.engine(model).call(RerankEngine.rerank, job, context=context.call)
        rendered = render(ranking)
        await account.settle(input_tokens=ranking.prompt_tokens)
    return rendered
