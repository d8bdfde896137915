"""Relevance of documents to a query.

CrossEncoderReranker    reads query and document together: the real thing, one pass per document
CosineReranker          compares two sentence vectors: fast and rough, for profiles without a cross-encoder
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.catalog import RerankModel
from contract.rerank import Ranking, RerankEngine, RerankJob
from models.encoders import IMPORTS, Encoder, EncoderOptions, Tokens
from models.options import read
from models.sentences import SentenceEncoder
from models.weights.files import WeightsError, need_folder


class CosineReranker(RerankEngine):
    """Ranks by the cosine of the query's vector and each document's.

    No cross-encoder: query and document never see each other, so negation, order and exact terms count for little.
    Scores are cosines in [-1, 1], not probabilities. The query is read once.
    """

    options_type = EncoderOptions
    imports = IMPORTS

    def __init__(self, model: RerankModel, path: Path | None) -> None:
        self._sentences = SentenceEncoder(model, path, read(model, EncoderOptions))

    async def rerank(self, job: RerankJob) -> Ranking:
        import numpy as np

        vectors, tokens = await self._sentences.vectors([job.query, *job.documents], job.owner)
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return Ranking(tuple((vectors[1:] @ vectors[0]).clip(-1, 1).tolist()), prompt_tokens=tokens)

    async def check_health(self) -> None:
        """Raises RuntimeError if the model makes no progress."""
        self._sentences.batcher.check()

    def close(self) -> None:
        self._sentences.batcher.close()


class CrossEncoderReranker(RerankEngine):
    """A sequence classifier with one label over query and document. Scores are its sigmoid, in (0, 1).

    A pair longer than the window loses the end of its longer text.
    """

    options_type = EncoderOptions
    imports = IMPORTS

    def __init__(self, model: RerankModel, path: Path | None) -> None:
        folder = need_folder(path, model.id)
        options = read(model, EncoderOptions)
        self._encoder = Encoder("AutoModelForSequenceClassification", model, folder, options)
        if self._encoder.network.config.num_labels != 1:
            raise WeightsError(f"the weights of `{model.id}` have several labels; a reranker has one")
        self._batcher = self._encoder.batcher(self._run)

    async def rerank(self, job: RerankJob) -> Ranking:
        items = await self._encoder.pairs(job.query, job.documents, job.owner)
        return Ranking(tuple(await self._batcher.submit(items, job.owner)), prompt_tokens=sum(map(len, items)))

    def _run(self, items: list[Tokens]) -> Any:
        import torch

        with torch.inference_mode():
            output, _mask = self._encoder.forward(items)
            return output.logits[:, 0].float().sigmoid().tolist()

    async def check_health(self) -> None:
        """Raises RuntimeError if the model makes no progress."""
        self._batcher.check()

    def close(self) -> None:
        self._batcher.close()
