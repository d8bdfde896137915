"""Text to vectors with any sentence encoder that transformers can load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contract.base import Text
from contract.catalog import EmbeddingModel
from contract.embeddings import Embeddings, EmbeddingsEngine, EmbeddingsJob
from contract.errors import CONTEXT_LENGTH_EXCEEDED, INVALID_REQUEST, ApiError
from models.encoders import EncoderAdapter, SentenceEncoder
from models.tokenizer import Tokens
from models.weights.files import WeightsError


class TransformerEmbedder(EncoderAdapter, EmbeddingsEngine):
    """An embedding model of the catalogue."""

    def __init__(self, model: EmbeddingModel, path: Path | None) -> None:
        self.model = model
        self.sentences = SentenceEncoder(model, path)
        self._workers = self.sentences.batcher
        self._ids = TokenIds(model.id, self.sentences.encoder.tokenizer)
        size = self.sentences.encoder.network.config.hidden_size
        if size != model.dimensions:
            raise WeightsError(
                f"the weights of `{model.id}` give {size} dimensions, but its stanza says {model.dimensions}"
            )

    async def embed(self, job: EmbeddingsJob) -> Embeddings:
        """One vector per text, in order.

        Texts longer than the window are cut at their end. Raises INVALID_REQUEST for ids of another tokenizer,
        CONTEXT_LENGTH_EXCEEDED where the job forbids the cut.
        """
        texts = await self._texts(job)
        if not job.truncate:
            self._refuse_long(texts)
        items: list[Tokens] = []
        async for some in self.sentences.encoder.encoded(texts, job.owner):
            for index, item in enumerate(some, len(items)):
                if item.cut and not job.truncate:
                    raise self._too_long(index, f"{len(item) + item.cut} tokens")
            items += some
        vectors, tokens = await self.sentences.vectors_of(items, job.owner)
        return Embeddings(vectors.astype("<f4").tobytes(), dimensions=vectors.shape[1], prompt_tokens=tokens)

    async def _texts(self, job: EmbeddingsJob) -> list[str]:
        if all(isinstance(text, str) for text in job.texts):
            return [f"{job.prompt}{text}" for text in job.texts]
        several = len(job.texts) > 1
        places = iter([f"`input[{index}]`" if several else "`input`" for index in range(len(job.texts))])

        def decoded(some: Sequence[Text]) -> list[str]:
            # Slices come in order, so the next places are those of these texts.
            read = zip(some, places, strict=False)
            return [text if isinstance(text, str) else self._ids.text(text, place) for text, place in read]

        slices = self.sentences.encoder.slices(decoded, job.texts, job.owner)
        return [f"{job.prompt}{text}" async for some in slices for text in some]

    def _refuse_long(self, texts: Sequence[str]) -> None:
        """Text that would be cut before it is made tokens."""
        most_chars = self.sentences.encoder.most_chars
        for index, text in enumerate(texts):
            if len(text) > most_chars:
                raise self._too_long(index, f"{len(text)} characters", f" and at most {most_chars} characters")

    def _too_long(self, index: int, length: str, also: str = "") -> ApiError:
        return CONTEXT_LENGTH_EXCEEDED(
            f"`input[{index}]` has {length}; `{self.model.id}` reads {self.sentences.encoder.window} tokens{also}, "
            "and `truncate` is false; shorten it or set `truncate`",
            param="input",
        )


INSTEAD = "send the text itself (LangChain: `check_embedding_ctx_length=False`)"


class TokenIds:
    """Reads token ids that clients send instead of texts back as the texts that they came from.

    Nothing in a request says which tokenizer made its ids. They are surely this model's where its special tokens stand
    around them and their text becomes them again; a vector of some other text would be worse than an error.
    `tokenizer` is that of the model itself, of the `tokenizers` library.
    """

    def __init__(self, model_id: str, tokenizer: Any) -> None:
        self._model_id = model_id
        # A copy: that of the model cuts at its window, and these ids must come back whole.
        self._tokenizer = type(tokenizer).from_str(tokenizer.to_str())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._vocabulary = self._tokenizer.get_vocab_size(with_added_tokens=True)
        framed = self._tokenizer.encode("a")
        plain = len(self._tokenizer.encode("a", add_special_tokens=False).ids)
        before = next((at for at, special in enumerate(framed.special_tokens_mask) if not special), 0)
        self._head, self._tail = framed.ids[:before], framed.ids[before + plain :]

    def text(self, ids: Sequence[int], place: str) -> str:
        """The text of `ids`, which have the special tokens around them.

        Raises INVALID_REQUEST for ids that this tokenizer does not make; `place` is their path in the request.
        """
        if (largest := max(ids)) >= self._vocabulary:
            raise self._refusal(f"token id {largest} of {place} is beyond the {self._vocabulary} ids of")
        inner = list(ids[len(self._head) : len(ids) - len(self._tail)])
        text: str = self._tokenizer.decode(inner, skip_special_tokens=False)
        is_framed = bool(self._head or self._tail) and [*self._head, *inner, *self._tail] == list(ids)
        if not (is_framed and inner and self._tokenizer.encode(text, add_special_tokens=False).ids == inner):
            raise self._refusal(f"the token ids of {place} are not those of a text, with all special tokens, from")
        return text

    def _refusal(self, what: str) -> ApiError:
        return INVALID_REQUEST(f"{what} the tokenizer of `{self._model_id}`; {INSTEAD}", param="input")
