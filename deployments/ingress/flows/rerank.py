"""Scoring documents against a query, billed by tokens. Spec 4 (POST /rerank)."""

from __future__ import annotations

from contract.catalog import RerankModel
from contract.rerank import Ranking, RerankEngine, RerankJob
from deployments.ingress.billing import bill
from deployments.ingress.context import RequestContext


async def rerank(context: RequestContext, model: RerankModel, job: RerankJob) -> Ranking:
    """One score per document, in order."""
    async with bill(context, model, {"input_tokens": job.most_input_tokens(model)}) as account:
        ranking = await context.engine(model).call(RerankEngine.rerank, job, timings=context.timings)
        await account.settle(input_tokens=ranking.prompt_tokens)
    return ranking
