"""Handles of chat, embedding, rerank and decision models for researchers; `sound_handles.py` has the others.

Arguments are those of the API and are checked as there: what it would refuse is raised here as ApiError. Each handle
has one call that waits, e.g. `complete`, and `submit` with the same arguments for a call that is on its way: `await`
it, or start many and take their `.result()` one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract import images as pictures
from contract.body import validated
from contract.catalog import ChatModel, DecisionModel, EmbeddingModel, RerankModel
from contract.chat.engine import ChatBatch, ChatEngine, ChatJob, ChatReply
from contract.chat.request import ChatRequest
from contract.chat.thinking import check_fits_model
from contract.completions import CompletionJob, CompletionReply, CompletionRequest, check_suffix
from contract.decisions.answers import Answer, expand_orders, to_answers
from contract.decisions.engine import DecisionEngine, DecisionJob, Measurement
from contract.decisions.native import DecisionRequest
from contract.decisions.questions import State, named
from contract.embeddings import MAX_INPUTS, Embeddings, EmbeddingsEngine, EmbeddingsRequest, job_of
from contract.errors import IMAGES_UNSUPPORTED, INVALID_REQUEST
from contract.rerank import Ranking, RerankEngine, RerankJob, RerankRequest
from contract.tokens import DetokenizeJob, DetokenizeRequest, Tokenized, TokenizeMessages, TokenizeText, check_job
from deployments.client.calls import Call, Handle, Stream

if TYPE_CHECKING:
    import numpy as np

    Vectors = np.ndarray[Any, np.dtype[np.float32]]

Question = str | list[dict[str, Any]] | ChatRequest
"""A question, the messages of a conversation, or a whole request."""

Picture = Path | bytes
"""A PNG, JPEG, WebP or GIF file."""


class ChatHandle(Handle[ChatModel]):
    """An LLM. `fields` are those of the API, e.g. `max_tokens=64`."""

    __slots__ = ()

    def complete(self, question: Question, images: Sequence[Picture] = (), **fields: Any) -> ChatReply:
        """The answer: `.text`, and `.body`, a `chat.completion`. Images go with a question that is a string."""
        return self.submit(question, images, **fields).result()

    def submit(self, question: Question, images: Sequence[Picture] = (), **fields: Any) -> Call[ChatReply]:
        return self._call(ChatEngine.complete, self._job(question, images, fields))

    def stream(self, question: Question, images: Sequence[Picture] = (), **fields: Any) -> Stream[ChatBatch]:
        """The answer as it is made: `.text`, `.events` as the API sends them, and the token counts so far."""
        return self._stream(ChatEngine.stream, self._job(question, images, fields | {"stream": True}))

    def write(self, prompt: str | list[str], **fields: Any) -> CompletionReply:
        """Prompts, continued as plain text: `.body` is a `text_completion`."""
        return self._call(ChatEngine.write, self._prompts(prompt, fields)).result()

    def write_stream(self, prompt: str, **fields: Any) -> Stream[ChatBatch]:
        """The continuation as it is made."""
        return self._stream(ChatEngine.write_stream, self._prompts(prompt, fields | {"stream": True}))

    def tokenize(self, text: str | list[dict[str, Any]], **fields: Any) -> Tokenized:
        """Tokens of a text, or of messages as the model reads them: `.ids`, and `.strings` if `return_token_strs`."""
        request: TokenizeText | TokenizeMessages
        if isinstance(text, str):
            request = validated(TokenizeText, {"model": self.model.id, "prompt": text, **fields})
        else:
            request = validated(TokenizeMessages, {"model": self.model.id, "messages": text, **fields})
        job = request.job()
        check_job(job, self.model)
        return self._call(ChatEngine.tokenize, job).result()

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text that the ids spell."""
        request = validated(DetokenizeRequest, {"model": self.model.id, "tokens": list(ids)})
        return self._call(ChatEngine.detokenize, DetokenizeJob(tuple(request.tokens))).result()

    def _job(self, question: Question, images: Sequence[Picture], fields: dict[str, Any]) -> ChatJob:
        if isinstance(question, ChatRequest):
            body = question.model_dump(by_alias=True, exclude_unset=True)
        else:
            turns = [{"role": "user", "content": _content(question, images)}] if isinstance(question, str) else question
            body = {"messages": turns}
        if images and not isinstance(question, str):
            raise INVALID_REQUEST(
                "`images` can only be sent with a question that is a string; otherwise put them into the messages"
            )
        request = validated(ChatRequest, body | fields | {"model": self.model.id})
        check_fits_model(request, self.model)
        return ChatJob(request)

    def _prompts(self, prompt: str | list[str], fields: dict[str, Any]) -> CompletionJob:
        request = validated(CompletionRequest, {"prompt": prompt, **fields, "model": self.model.id})
        check_suffix(request, self.model)
        return CompletionJob(request)


class EmbedderHandle(Handle[EmbeddingModel]):
    """An embedding model. `fields` are those of the API: `input_type`, `dimensions`, `truncate`."""

    __slots__ = ()

    def embed(self, texts: Sequence[str], **fields: Any) -> Vectors:
        """Unit vectors, float32 [n, dimensions], of any number of texts."""
        import numpy as np

        if isinstance(texts, str):
            texts = [texts]
        parts = [texts[start : start + MAX_INPUTS] for start in range(0, len(texts), MAX_INPUTS)] or [texts]
        calls = [self.submit(part, **fields) for part in parts]
        return np.concatenate([call.result() for call in calls])

    def submit(self, texts: Sequence[str], **fields: Any) -> Call[Vectors]:
        """Embeds as many texts as one request may have."""
        body = {"model": self.model.id, "input": _listed(texts), **fields}
        job = job_of(validated(EmbeddingsRequest, body), self.model)
        return self._call(EmbeddingsEngine.embed, job).then(_vectors)


class RerankerHandle(Handle[RerankModel]):
    """A rerank model."""

    __slots__ = ()

    def rerank(self, query: str, documents: Sequence[str]) -> Ranking:
        """One score per document, in order; higher is more relevant."""
        return self.submit(query, documents).result()

    def submit(self, query: str, documents: Sequence[str]) -> Call[Ranking]:
        body = {"model": self.model.id, "query": query, "documents": _listed(documents)}
        request = validated(RerankRequest, body)
        return self._call(RerankEngine.rerank, RerankJob(request.query, request.documents))


class DecisionsHandle(Handle[DecisionModel]):
    """A decision model."""

    __slots__ = ()

    def decide(
        self, state: State, questions: Mapping[str, Any] | str, images: Sequence[Picture] = (), **fields: Any
    ) -> dict[str, Answer]:
        """Answers by the name of their question, as in the API.

        Args:
            state: text or JSON that is judged.
            questions: dictionaries as in the API, or the id of a preset.
            images: images that are judged with it.
            fields: `policy` and `order` of the API.
        """
        return self.submit(state, questions, images, **fields).result()

    def submit(
        self, state: State, questions: Mapping[str, Any] | str, images: Sequence[Picture] = (), **fields: Any
    ) -> Call[dict[str, Answer]]:
        chosen = {"preset": questions} if isinstance(questions, str) else {"questions": dict(questions)}
        shown = [{"data_url": _address(image)} for image in images]
        decision = validated(DecisionRequest, {"state": state, **chosen, "images": shown, **fields})
        preset = None if decision.preset is None else named(self.catalog.presets, decision.preset)
        if shown and not self.model.reads_images:
            raise IMAGES_UNSUPPORTED(f"model `{self.model.id}` does not read images here; send none", param="images")
        wanted = preset.questions if preset else decision.questions or {}
        job = DecisionJob(decision.text, expand_orders(wanted, decision.order), decision.addresses)
        return self._call(DecisionEngine.decide, job).then(
            lambda readings: to_answers(wanted, readings, decision.policy, decision.order)
        )

    def measured(self) -> Measurement | None:
        """Results on the examples of the presets when it started, under which it answers."""
        return self._call(DecisionEngine.measured, None).result()


def _content(question: str, images: Sequence[Picture]) -> list[dict[str, Any]]:
    shown = [{"type": "image_url", "image_url": {"url": _address(image)}} for image in images]
    return [*shown, {"type": "text", "text": question}]


def _address(image: Picture) -> str:
    try:
        return pictures.address(image.read_bytes() if isinstance(image, Path) else image)
    except ValueError as error:
        raise INVALID_REQUEST(str(error), param="images") from None


def _listed(texts: Sequence[str]) -> str | list[str]:
    """A list as JSON has it, of an array, a tuple or a column of a table. A text is no list of its letters."""
    return texts if isinstance(texts, str) else list(texts)


def _vectors(embeddings: Embeddings) -> Vectors:
    import numpy as np

    return np.frombuffer(embeddings.vectors, "<f4").reshape(-1, embeddings.dimensions)
