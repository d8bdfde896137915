"""A reranker replica. Spec 4, POST /rerank."""

from __future__ import annotations

from ray import serve

from contract.rerank import Ranking, RerankEngine, RerankJob
from deployments.replica import Replica


@serve.deployment
class Reranker(Replica[RerankEngine]):
    """One rerank model of the catalogue. Its method is that of `RerankEngine`."""

    async def rerank(self, job: RerankJob) -> Ranking:
        return await self.engine.rerank(job)
