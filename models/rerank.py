"""Relevance of documents to a query. Spec 4, POST /rerank.

CrossEncoderReranker    reads query and document together: the real thing, one pass per document
CosineReranker          compares two sentence vectors: fast and rough, for profiles without a cross-encoder
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.catalog import RerankModel, Serving
from contract.rerank import Ranking
from models.embeddings import SentenceEncoder
from models.encoders import Encoder, Tokens, need_folder
from models.weights.files import WeightsError


class CosineReranker:
    """Ranks by the cosine of the query's vector and each document's.

    No cross-encoder: query and document never see each other, so negation, order and exact terms count for little.
    Scores are cosines in [-1, 1], not probabilities. The query is read once.
    """

    def __init__(self, model: RerankModel, path: Path | None) -> None:
        serving = _serving(model, "CosineReranker")
        self._sentences = SentenceEncoder(model.id, serving, path, window=model.context_window)

    async def rerank(self, query: str, documents: list[str]) -> Ranking:
        """One score per document, in order; higher is more relevant."""
        import numpy as np

        vectors, tokens = await self._sentences.vectors([query, *documents])
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return Ranking(tuple((vectors[1:] @ vectors[0]).clip(-1, 1).tolist()), prompt_tokens=tokens)

    async def check_health(self) -> None:
        """Raises RuntimeError if the model makes no progress."""
        self._sentences.batcher.check()

    def close(self) -> None:
        """Ends the worker thread."""
        self._sentences.batcher.close()


class CrossEncoderReranker:
    """A sequence classifier with one label over query and document. Scores are its sigmoid, in (0, 1).

    A pair longer than the window loses the end of its longer text. Options of the stanza: `dtype`, `device`,
    `batch_tokens`.
    """

    def __init__(self, model: RerankModel, path: Path | None) -> None:
        serving = _serving(model, "CrossEncoderReranker")
        folder = need_folder(path, model.id)
        self._encoder = Encoder("AutoModelForSequenceClassification", serving, folder, window=model.context_window)
        if self._encoder.network.config.num_labels != 1:
            raise WeightsError(f"the weights of `{model.id}` have several labels; a reranker has one")
        self._batcher = self._encoder.batcher(self._run, serving, model.id)

    async def rerank(self, query: str, documents: list[str]) -> Ranking:
        """One score per document, in order; higher is more relevant."""
        items = await self._encoder.encode([(query, document) for document in documents])
        return Ranking(tuple(await self._batcher.submit(items)), prompt_tokens=sum(map(len, items)))

    def _run(self, items: list[Tokens]) -> Any:
        import torch

        with torch.inference_mode():
            output, _mask = self._encoder.forward(items)
            return output.logits[:, 0].float().sigmoid().tolist()

    async def check_health(self) -> None:
        """Raises RuntimeError if the model makes no progress."""
        self._batcher.check()

    def close(self) -> None:
        """Ends the worker thread."""
        self._batcher.close()


def _serving(model: RerankModel, adapter: str) -> Serving:
    """How the profile runs `model`; the defaults where none is given, as in a notebook."""
    return model.serving or Serving(adapter=f"models.rerank:{adapter}", runtime=model.id)
