"""How much a model thinks: what a request asks for, in the terms of one model. Spec 1, rule 1.

reasoning_effort       one scale for all models; each takes of it what it can, and one that cannot think ignores it
chat_template_kwargs   variables of the model's own template: those that its stanza allows
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic import PositiveInt

from contract.base import Frozen
from contract.chat.request import ChatRequest, ReasoningEffort
from contract.errors import INVALID_REQUEST, ApiError

EFFORTS: tuple[ReasoningEffort, ...] = get_args(ReasoningEffort)
"""From not at all upwards."""

MAX_VARIABLE = 2**31 - 1
"""Of a whole number in `chat_template_kwargs`."""

Allowed = Literal["boolean", "integer"] | tuple[str, ...]
"""What a template variable may be: words of a client are never put into a template, so strings are listed."""


class Thinking(Frozen):
    """How a model is told whether to think, and how much: `thinking` of a stanza.

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
        """Names that `chat_template_kwargs` may have, and what each may be."""
        switch: dict[str, Allowed] = {self.switch: "boolean"} if self.switch else {}
        return switch | self.variables


@dataclass(frozen=True, slots=True)
class Told:
    """What one request tells a model.

    Attributes:
        variables: of its template.
        level: its template's `reasoning_effort`; None leaves the template's own.
        budget_tokens: of thoughts; None is no bound of their own.
    """

    variables: dict[str, Any] = field(default_factory=dict)
    level: ReasoningEffort | None = None
    budget_tokens: int | None = None


CANNOT = Thinking()
"""Of a model that does not think, or cannot be told."""


def told(request: ChatRequest, thinking: Thinking | None) -> Told:
    """What `request` tells a model. What the client says of a variable goes before its effort.

    Raises INVALID_REQUEST for a variable that the model's stanza does not allow.
    """
    thinking = thinking or CANNOT
    said = request.chat_template_kwargs or {}
    for name, value in said.items():
        _check(name, value, thinking.allowed)
    effort = request.reasoning_effort
    if effort is None:
        return Told(said)
    switched = {thinking.switch: effort != "none"} if thinking.switch else {}
    return Told(switched | said, _nearest(effort, thinking.levels), thinking.budgets.get(effort))


def _check(name: str, value: Any, allowed: dict[str, Allowed]) -> None:
    match allowed.get(name):
        case None:
            names = ", ".join(f"`{one}`" for one in allowed)
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
    """`effort` itself, or the nearest level, of two the lower one; not thinking at all is near to nothing else."""
    if effort in levels:
        return effort
    place = EFFORTS.index(effort)
    thoughtful = [level for level in levels if level != "none"]
    if effort == "none" or not thoughtful:
        return None
    return min(thoughtful, key=lambda level: (abs(EFFORTS.index(level) - place), EFFORTS.index(level)))
