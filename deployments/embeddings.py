"""An embedder replica. Spec 4, POST /embeddings."""

from __future__ import annotations

from ray import serve

from contract.embeddings import Embeddings, EmbeddingsEngine, EmbeddingsJob
from deployments.replica import Replica


@serve.deployment
class Embedder(Replica[EmbeddingsEngine]):
    """One embedding model of the catalogue. Its method is that of `EmbeddingsEngine`."""

    async def embed(self, job: EmbeddingsJob) -> Embeddings:
        return await self.engine.embed(job)
