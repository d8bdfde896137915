"""How much a model thinks: what a request asks for, in the terms of one model.

reasoning_effort       one scale for all models; each takes of it what it can, and one that cannot think ignores it
chat_template_kwargs   variables of the model's own template: those that its stanza allows
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_args

from contract.catalog.chat import Allowed, ReasoningEffort, ThinkingOptions
from contract.chat.request import ChatRequest
from contract.errors import INVALID_REQUEST, ApiError

EFFORTS: tuple[ReasoningEffort, ...] = get_args(ReasoningEffort)
"""Every effort, the lowest first."""

MAX_VARIABLE = 2**31 - 1
"""The largest whole number in `chat_template_kwargs`."""


@dataclass(frozen=True, slots=True)
class ReasoningSettings:
    """What one request sets of a model's reasoning.

    Attributes:
        variables: of its template.
        level: its template's `reasoning_effort`; None leaves the template's own.
        budget_tokens: tokens of thoughts; None sets no bound.
    """

    variables: dict[str, Any] = field(default_factory=dict)
    level: ReasoningEffort | None = None
    budget_tokens: int | None = None


NO_THINKING = ThinkingOptions()
"""The options of a model that does not think, or whose template has no switch."""


def reasoning_settings(request: ChatRequest, thinking: ThinkingOptions | None) -> ReasoningSettings:
    """The settings of `request`. Explicit template variables take precedence over `reasoning_effort`.

    Raises INVALID_REQUEST for a variable that the model's stanza does not allow.
    """
    thinking = thinking or NO_THINKING
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
            can = f"this model takes {names}" if names else "this model takes none"
            raise _refusal(name, f"`chat_template_kwargs` has `{name[:64]}`; {can}")
        case "boolean":
            fits, form = isinstance(value, bool), "true or false"
        case "integer":
            fits, form = type(value) is int and 0 <= value <= MAX_VARIABLE, f"a whole number from 0 to {MAX_VARIABLE}"
        case words:
            fits, form = value in words, "one of " + ", ".join(f"`{word}`" for word in words)
    if not fits:
        raise _refusal(name, f"`{name}` in `chat_template_kwargs` must be {form}")


def _refusal(name: str, sentence: str) -> ApiError:
    return INVALID_REQUEST(sentence, param=f"chat_template_kwargs.{name[:64]}")


def _nearest(effort: ReasoningEffort, levels: tuple[ReasoningEffort, ...]) -> ReasoningEffort | None:
    """`effort` itself, or the nearest level, of two the lower one; not thinking at all is near to nothing else."""
    if effort in levels:
        return effort
    place = EFFORTS.index(effort)
    thoughtful = [level for level in levels if level != "none"]
    if effort == "none" or not thoughtful:
        return None
    return min(thoughtful, key=lambda level: (abs(EFFORTS.index(level) - place), EFFORTS.index(level)))
