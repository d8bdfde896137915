"""Stanzas of embedding models, rerankers and decision scorers."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from contract.catalog.base import Model

InputType = Literal["query", "document", "code", "classification", "clustering"]
"""Purpose of a text that is embedded."""


class EmbeddingModel(Model):
    """Model that turns texts into vectors.

    Attributes:
        dimensions: numbers of a vector.
        context_window: longest text, in tokens.
        prompts: texts that the model reads before an input, by its purpose; empty for models trained without prompts.
    """

    kind = "embedding"
    noun = "embeddings"

    dimensions: PositiveInt
    context_window: PositiveInt
    prompts: dict[InputType, str] = {}


class RerankModel(Model):
    """Model that scores documents against a query.

    Attributes:
        context_window: longest query and document together, in tokens.
    """

    kind = "rerank"
    noun = "rerank"

    context_window: PositiveInt


class DecisionModel(Model):
    """A decision scorer. `/models` does not name it: GET /decisions/models does.

    Attributes:
        via: method by which the model is read; every answer names it.
        context_window: longest state and question together, in tokens.
    """

    kind = "decision"
    noun = "decisions"
    is_listed = False

    via: str
    context_window: PositiveInt

    @property
    def runtime_via(self) -> str:
        """Method by which the runtime here is read."""
        return (self.serving.via if self.serving else None) or self.via

    @property
    def reads_images(self) -> bool:
        return bool(self.serving and self.serving.options.get("images"))


EncoderModel = EmbeddingModel | RerankModel | DecisionModel
"""Models that run on an encoder; all have a `context_window`."""
