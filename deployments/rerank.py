"""A reranker replica. Spec 4, POST /rerank."""

from __future__ import annotations

from ray import serve

from contract.rerank import Ranking
from deployments.replica import Replica


@serve.deployment
class Reranker(Replica):
    """One rerank model of the catalogue."""

    async def rerank(self, query: str, documents: list[str]) -> Ranking:
        """One score per document, in order; higher is more relevant."""
        ranking: Ranking = await self.adapter.rerank(query, documents)
        return ranking
