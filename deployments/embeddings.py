"""An embedder replica. Spec 4, POST /embeddings."""

from __future__ import annotations

from ray import serve

from contract.embeddings import Embeddings
from deployments.replica import Replica


@serve.deployment
class Embedder(Replica):
    """One embedding model of the catalogue."""

    async def embed(self, texts: list[str], dimensions: int | None = None) -> Embeddings:
        """One vector per text, in order; `dimensions` cuts and renormalises where the model allows it."""
        embeddings: Embeddings = await self.adapter.embed(texts, dimensions)
        return embeddings
