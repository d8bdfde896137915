"""Text to vectors with any sentence encoder that transformers can load. Spec 4, POST /embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contract.catalog import EmbeddingModel
from contract.embeddings import Embeddings, EmbeddingsEngine, EmbeddingsJob, Text
from contract.errors import CONTEXT_LENGTH_EXCEEDED
from models.encoders import IMPORTS, Tokens
from models.options import read
from models.sentences import SentenceEncoder, SentenceOptions
from models.token_ids import TokenIds
from models.weights.files import WeightsError


class TransformerEmbedder(EmbeddingsEngine):
    """An embedding model of the catalogue."""

    options_type = SentenceOptions
    imports = IMPORTS

    def __init__(self, model: EmbeddingModel, path: Path | None) -> None:
        self.model = model
        self._sentences = SentenceEncoder(model, path, read(model, SentenceOptions))
        self._ids = TokenIds(model.id, self._sentences.encoder.tokenizer)
        size = self._sentences.encoder.network.config.hidden_size
        if size != model.dimensions:
            raise WeightsError(
                f"the weights of `{model.id}` give {size} dimensions, but its stanza says {model.dimensions}"
            )

    async def embed(self, job: EmbeddingsJob) -> Embeddings:
        """One vector per text, in order; with `dimensions`, its first numbers scaled to length 1 again.

        Texts longer than the window are cut at their end. Raises INVALID_REQUEST for ids of another tokenizer,
        CONTEXT_LENGTH_EXCEEDED where the job forbids the cut.
        """
        import numpy as np

        texts = await self._texts(job)
        if not job.truncate:
            self._refuse_long(texts)
        items: list[Tokens] = []
        async for some in self._sentences.encoder.encoded(texts, job.owner):
            if not job.truncate:
                self._refuse_cut(some, before=len(items))
            items += some
        vectors, tokens = await self._sentences.vectors_of(items, job.owner)
        if job.dimensions and job.dimensions < vectors.shape[1]:
            vectors = vectors[:, : job.dimensions]
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return Embeddings(vectors.astype("<f4").tobytes(), dimensions=vectors.shape[1], prompt_tokens=tokens)

    async def _texts(self, job: EmbeddingsJob) -> list[str]:
        """What is read: the prompt, and the text."""
        if all(isinstance(text, str) for text in job.texts):
            return [f"{job.prompt}{text}" for text in job.texts]
        several = len(job.texts) > 1
        places = iter([f"`input[{index}]`" if several else "`input`" for index in range(len(job.texts))])

        def decoded(some: Sequence[Text]) -> list[str]:
            # Slices come in order, so the next places are those of these texts.
            read = zip(some, places, strict=False)
            return [text if isinstance(text, str) else self._ids.text(text, place) for text, place in read]

        slices = self._sentences.encoder.slices(decoded, job.texts, job.owner)
        return [f"{job.prompt}{text}" async for some in slices for text in some]

    def _refuse_long(self, texts: Sequence[str]) -> None:
        """What would be cut before it is made tokens."""
        encoder = self._sentences.encoder
        for index, text in enumerate(texts):
            if len(text) > encoder.most_chars:
                raise CONTEXT_LENGTH_EXCEEDED(
                    f"`input[{index}]` has {len(text)} characters; `{self.model.id}` reads {encoder.window} tokens and "
                    f"at most {encoder.most_chars} characters, and `truncate` is false; shorten it or set `truncate`",
                    param="input",
                )

    def _refuse_cut(self, items: Sequence[Tokens], before: int) -> None:
        for index, item in enumerate(items, before):
            if item.cut:
                raise CONTEXT_LENGTH_EXCEEDED(
                    f"`input[{index}]` has {len(item) + item.cut} tokens; `{self.model.id}` reads "
                    f"{self._sentences.encoder.window}, and `truncate` is false; shorten it or set `truncate`",
                    param="input",
                )

    async def check_health(self) -> None:
        """Raises RuntimeError if the model makes no progress."""
        self._sentences.batcher.check()

    def close(self) -> None:
        self._sentences.batcher.close()
