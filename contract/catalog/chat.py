"""Stanza of a chat model."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt, model_validator

from contract.base import Frozen
from contract.catalog.base import Model

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""Amount of reasoning before the answer, on one scale for all models; `none` is no reasoning."""

Allowed = Literal["boolean", "integer"] | tuple[str, ...]
"""Type of a template variable. Free text of clients never enters a template, so allowed strings are listed."""


class ThinkingOptions(Frozen):
    """Controls for the reasoning of a model.

    Attributes:
        switch: boolean variable of the chat template that enables reasoning; None if the template has none.
        levels: values of `reasoning_effort` in the template; any other effort becomes the nearest of them.
        budgets: tokens after which the engine ends the reasoning, by effort; requires a `reasoning_parser`.
        variables: further variables that clients may set.
    """

    switch: str | None = None
    levels: tuple[ReasoningEffort, ...] = ()
    budgets: dict[ReasoningEffort, PositiveInt] = {}
    variables: dict[str, Allowed] = {}

    @property
    def allowed(self) -> dict[str, Allowed]:
        """Variables that `chat_template_kwargs` may set, with their types."""
        switch: dict[str, Allowed] = {self.switch: "boolean"} if self.switch else {}
        return switch | self.variables


class FillInMiddle(Frozen):
    """Control tokens around the two texts between which a model writes a third."""

    before: str
    between: str
    after: str


class ChatModel(Model):
    """An LLM.

    The price `cached_input_tokens` applies to tokens of the prompt that an earlier request left in the cache; without
    it, they cost the same as other tokens.

    Attributes:
        tier: use that the model is recommended for.
        context_window: tokens of prompt and answer together.
        vision: whether the model reads images.
        reasoning_parser: vLLM's parser that recognises the model's reasoning.
        tool_parser: vLLM's parser that recognises the model's tool calls; None if it cannot call tools.
        thinking: controls for the model's reasoning; None if it has no reasoning, or no control over it.
        fill_in: control tokens around a gap, for models trained to fill one: POST /completions takes a `suffix`.
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
