"""What a stanza of a chat model may say."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt, model_validator

from contract.base import Frozen
from contract.catalog.base import Model

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model may think before it answers, on one scale for all models; `none` is not at all."""

Allowed = Literal["boolean", "integer"] | tuple[str, ...]
"""The type of a template variable. A client's own words are never put into a template, so strings are listed."""


class ThinkingOptions(Frozen):
    """How a model is told whether to think, and for how long.

    Attributes:
        switch: boolean variable of the chat template, true where the model shall think; None where it cannot be told.
        levels: values that its template's `reasoning_effort` may have; an effort that is not there becomes the nearest.
        budgets: tokens after which the engine ends the thoughts, by effort; it needs a `reasoning_parser`.
        variables: further variables that clients may set.
    """

    switch: str | None = None
    levels: tuple[ReasoningEffort, ...] = ()
    budgets: dict[ReasoningEffort, PositiveInt] = {}
    variables: dict[str, Allowed] = {}

    @property
    def allowed(self) -> dict[str, Allowed]:
        """The variables that `chat_template_kwargs` may set, and their types."""
        switch: dict[str, Allowed] = {self.switch: "boolean"} if self.switch else {}
        return switch | self.variables


class FillInMiddle(Frozen):
    """Control tokens around the two texts between which a model writes a third."""

    before: str
    between: str
    after: str


class ChatModel(Model):
    """An LLM.

    A price `cached_input_tokens` is for tokens of the prompt that an earlier request had left in the cache; without one
    they cost what the others cost.

    Attributes:
        tier: what the model is recommended for.
        context_window: tokens of prompt and answer together.
        vision: whether it reads images.
        reasoning_parser: vLLM's parser that recognises its reasoning.
        tool_parser: vLLM's parser that recognises its tool calls; None where it cannot call tools.
        thinking: how it is told to think; None where it does not, or cannot be told.
        fill_in: control tokens around a gap, for models that were made to fill one: POST /completions takes a `suffix`.
    """

    kind = "chat"
    noun = "chat"

    tier: Literal["default", "balanced", "reasoning", "vision", "premium"]
    context_window: PositiveInt
    vision: bool = False
    reasoning_parser: str | None = None
    tool_parser: str | None = None
    thinking: ThinkingOptions | None = None
    fill_in: FillInMiddle | None = None

    @model_validator(mode="after")
    def _agrees(self) -> ChatModel:
        if self.price.get("cached_input_tokens", 0) > self.price.get("input_tokens", 0):
            raise ValueError(
                "`cached_input_tokens` must not cost more than `input_tokens`, the price that reservations use"
            )
        if self.thinking and self.thinking.budgets and not self.reasoning_parser:
            raise ValueError("`thinking.budgets` needs a `reasoning_parser`, which recognises the end of the reasoning")
        return self
