"""What a stanza of an embedding model, a reranker or a decision scorer may say."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from contract.catalog.base import Model

InputType = Literal["query", "document", "code", "classification", "clustering"]
"""The purpose of a text that is embedded."""


class EmbeddingModel(Model):
    """Turns texts into vectors.

    Attributes:
        dimensions: numbers of a vector.
        context_window: of one text, in tokens.
        prompts: read before a text, by what it is for; empty for models that were trained without.
    """

    kind = "embedding"
    noun = "embeddings"

    dimensions: PositiveInt
    context_window: PositiveInt
    prompts: dict[InputType, str] = {}


class RerankModel(Model):
    """Scores documents against a query.

    Attributes:
        context_window: of one query and one document, in tokens.
    """

    kind = "rerank"
    noun = "rerank"

    context_window: PositiveInt


class DecisionModel(Model):
    """A decision scorer. `/models` does not name it: GET /decisions/models does.

    Attributes:
        via: how it is read; every answer names it.
        context_window: of the state and one question, in tokens.
    """

    kind = "decision"
    noun = "decisions"
    is_listed = False

    via: str
    context_window: PositiveInt

    @property
    def runtime_via(self) -> str:
        """How the runtime here is read."""
        return (self.serving.via if self.serving else None) or self.via

    @property
    def reads_images(self) -> bool:
        return bool(self.serving and self.serving.options.get("images"))


EncoderModel = EmbeddingModel | RerankModel | DecisionModel
"""Models that run on an encoder; all have a `context_window`."""
