"""Text to vectors with any sentence encoder that transformers can load. Spec 4, POST /embeddings."""

from __future__ import annotations

from pathlib import Path

from contract.catalog import EmbeddingModel
from contract.embeddings import Embeddings, EmbeddingsEngine, EmbeddingsJob
from models.options import read
from models.sentences import SentenceEncoder, SentenceOptions
from models.weights.files import WeightsError


class TransformerEmbedder(EmbeddingsEngine):
    """An embedding model of the catalogue."""

    options_type = SentenceOptions

    def __init__(self, model: EmbeddingModel, path: Path | None) -> None:
        self.model = model
        self._sentences = SentenceEncoder(model, path, read(model, SentenceOptions))
        size = self._sentences.encoder.network.config.hidden_size
        if size != model.dimensions:
            raise WeightsError(
                f"the weights of `{model.id}` give {size} dimensions, its stanza says {model.dimensions}"
            )

    async def embed(self, job: EmbeddingsJob) -> Embeddings:
        """One vector per text, in order; with `dimensions`, its first numbers scaled to length 1 again.

        Texts longer than the window are cut at their end.
        """
        import numpy as np

        vectors, tokens = await self._sentences.vectors(job.texts)
        if job.dimensions and job.dimensions < vectors.shape[1]:
            vectors = vectors[:, : job.dimensions]
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return Embeddings(vectors.astype("<f4").tobytes(), dimensions=vectors.shape[1], prompt_tokens=tokens)

    async def check_health(self) -> None:
        """Raises RuntimeError if the model makes no progress."""
        self._sentences.batcher.check()

    def close(self) -> None:
        self._sentences.batcher.close()
