"""Calls of tools that a client repeats. Their arguments are JSON in a string, which is a body inside of a body."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, Tag

from contract.base import Lenient
from contract.body import count_values
from contract.chat.tools import CUSTOM, FUNCTION, INPUT, Id, Name, one_of
from contract.errors import INVALID_REQUEST, ApiError
from contract.limits import JSON_VALUES


class CalledFunction(Lenient):
    """A call that the model made earlier. `arguments` is a JSON object as text."""

    name: Name
    arguments: Annotated[str, AfterValidator(lambda text: text or "{}")] = "{}"


class ToolCall(Lenient):
    """A call of the assistant, repeated by the client."""

    id: Id
    type: Literal["function"] = "function"
    function: CalledFunction

    @property
    def as_function(self) -> ToolCall:
        return self


class CalledCustom(Lenient):
    """A call of a custom tool that the model made earlier."""

    name: Name
    input: str


class CustomCall(Lenient):
    """A call of a custom tool, repeated by the client."""

    id: Id
    type: Literal["custom"]
    custom: CalledCustom

    @property
    def as_function(self) -> ToolCall:
        """The call of the function that engines know instead."""
        arguments = json.dumps({INPUT: self.custom.input}, ensure_ascii=False)
        return ToolCall(id=self.id, function=CalledFunction(name=self.custom.name, arguments=arguments))


AnyCall = Annotated[
    Annotated[ToolCall, Tag(FUNCTION)] | Annotated[CustomCall, Tag(CUSTOM)],
    one_of("a tool call must be an object of type `function` or `custom`"),
]


def check_arguments(calls: Iterable[tuple[str, str]]) -> None:
    """Raises INVALID_REQUEST where the arguments of a call, each after its place, are no JSON object.

    All of them together may hold as many values as a body: reading them takes as long, here and where a template does.
    """
    all_arguments = list(calls)
    if not all_arguments:
        return
    together = "".join(arguments for _, arguments in all_arguments)
    is_much = sum(map(together.count, ",:[{")) > JSON_VALUES
    remaining_values = JSON_VALUES
    for place, arguments in all_arguments:
        try:
            # Punctuation inside of strings, as code has it, is no value: most calls need no closer look.
            remaining_values -= count_values(arguments.encode(), remaining_values, clear=0) if is_much else 0
            readable = isinstance(json.loads(arguments), dict)
        except ApiError:
            raise INVALID_REQUEST(
                f"`{place}`: the arguments of all tool calls together have more than {JSON_VALUES} keys and values",
                param=place,
            ) from None
        except (ValueError, RecursionError):
            readable = False
        if not readable:
            raise INVALID_REQUEST(
                f"`{place}`: `arguments` of a tool call must be a string that contains a JSON object", param=place
            )
