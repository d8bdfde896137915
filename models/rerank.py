"""Relevance of documents to a query.

CrossEncoderReranker    reads query and document together: the real thing, one pass per document
CosineReranker          compares two sentence vectors: fast and rough, for profiles without a cross-encoder
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.catalog import RerankModel
from contract.rerank import Ranking, RerankEngine, RerankJob
from models.encoders import EncoderAdapter, SentenceEncoder, TextEncoder
from models.tokenizer import Tokens
from models.weights.files import WeightsError, need_folder


class CosineReranker(EncoderAdapter, RerankEngine):
    """Ranks by the cosine of the query's vector and each document's.

    No cross-encoder: query and document never see each other, so negation, order and exact terms count for little.
    Scores are cosines in [-1, 1], not probabilities. The query is read once.
    """

    def __init__(self, model: RerankModel, path: Path | None) -> None:
        self.sentences = SentenceEncoder(model, path)
        self._workers = self.sentences.batcher

    async def rerank(self, job: RerankJob) -> Ranking:
        import numpy as np

        vectors, tokens = await self.sentences.vectors([job.query, *job.documents], job.owner)
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return Ranking(tuple((vectors[1:] @ vectors[0]).clip(-1, 1).tolist()), prompt_tokens=tokens)


class CrossEncoderReranker(EncoderAdapter, RerankEngine):
    """A sequence classifier with one label over query and document. Scores are its sigmoid, in (0, 1).

    A pair longer than the window loses the end of its longer text.
    """

    def __init__(self, model: RerankModel, path: Path | None) -> None:
        self.encoder = TextEncoder("AutoModelForSequenceClassification", model, need_folder(path, model.id))
        if self.encoder.network.config.num_labels != 1:
            raise WeightsError(f"the weights of `{model.id}` have several labels; a reranker needs exactly one")
        self._workers = self.encoder.batcher(self._run)

    async def rerank(self, job: RerankJob) -> Ranking:
        items = await self.encoder.pairs(job.query, job.documents, job.owner)
        return Ranking(tuple(await self._workers.submit(items, job.owner)), prompt_tokens=sum(map(len, items)))

    def _run(self, items: list[Tokens]) -> Any:
        import torch

        with torch.inference_mode():
            output, _mask = self.encoder.forward(items)
            return output.logits[:, 0].float().sigmoid().tolist()
