"""Images and reasoning settings of a request, in the terms of one model.

reasoning_effort       one scale for all models; a model uses its nearest level, and ignores the field if it has none
chat_template_kwargs   variables of the template of the model, as far as its stanza allows them
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_args

from contract.catalog.chat import Allowed, ChatModel, ReasoningEffort, ThinkingOptions
from contract.chat.request import ChatRequest
from contract.errors import IMAGES_UNSUPPORTED, INVALID_REQUEST, ApiError

EFFORTS: tuple[ReasoningEffort, ...] = get_args(ReasoningEffort)
"""Every effort, the lowest first."""

MAX_VARIABLE = 2**31 - 1
"""Largest integer in `chat_template_kwargs`."""


@dataclass(frozen=True, slots=True)
class ReasoningSettings:
    """Settings of one request for the reasoning of a model.

    Attributes:
        variables: variables of the template.
        level: `reasoning_effort` of the template; None for the default of the template.
        budget_tokens: most tokens of reasoning; None for no bound.
    """

    variables: dict[str, Any] = field(default_factory=dict)
    level: ReasoningEffort | None = None
    budget_tokens: int | None = None


def check_fits_model(request: ChatRequest, model: ChatModel) -> None:
    """Raises IMAGES_UNSUPPORTED, and what `reasoning_settings` raises, before an engine starts or money is reserved."""
    # Without the place of the image: other wires have other messages than the chat that is made of them.
    if not model.vision and any(message.images for message in request.messages):
        raise IMAGES_UNSUPPORTED(f"model `{model.id}` does not read images; send none", param="messages")
    reasoning_settings(request, model.thinking)


def reasoning_settings(request: ChatRequest, thinking: ThinkingOptions | None) -> ReasoningSettings:
    """Returns the settings of `request`. Explicit template variables take precedence over `reasoning_effort`.

    Raises INVALID_REQUEST for a variable that the stanza of the model does not allow.
    """
    thinking = thinking or ThinkingOptions()
    variables = request.chat_template_kwargs or {}
    for name, value in variables.items():
        _check(name, value, thinking.allowed)
    effort = request.reasoning_effort
    if effort is None:
        return ReasoningSettings(variables)
    switched = {thinking.switch: effort != "none"} if thinking.switch else {}
    return ReasoningSettings(switched | variables, _nearest(effort, thinking.levels), thinking.budgets.get(effort))


def _check(name: str, value: Any, allowed: dict[str, Allowed]) -> None:
    match allowed.get(name):
        case None:
            names = ", ".join(f"`{allowed_name}`" for allowed_name in allowed)
            can = f"this model supports {names}" if names else "this model supports no variables"
            raise _refusal(name, f"`chat_template_kwargs` has `{name[:64]}`; {can}")
        case "boolean":
            fits, form = isinstance(value, bool), "true or false"
        case "integer":
            fits, form = type(value) is int and 0 <= value <= MAX_VARIABLE, f"an integer from 0 to {MAX_VARIABLE}"
        case words:
            fits, form = value in words, "one of " + ", ".join(f"`{word}`" for word in words)
    if not fits:
        raise _refusal(name, f"`{name}` in `chat_template_kwargs` must be {form}")


def _refusal(name: str, sentence: str) -> ApiError:
    return INVALID_REQUEST(sentence, param=f"chat_template_kwargs.{name[:64]}")


def _nearest(effort: ReasoningEffort, levels: tuple[ReasoningEffort, ...]) -> ReasoningEffort | None:
    """Returns `effort` or the nearest level, of two the lower one. `none` is near to no other level."""
    if effort == "none":
        return effort if effort in levels else None
    place = EFFORTS.index(effort)
    thoughtful = (level for level in levels if level != "none")
    return min(thoughtful, key=lambda level: (abs(EFFORTS.index(level) - place), EFFORTS.index(level)), default=None)
