"""Tools of POST /responses beside functions: those that take text, and a choice between some of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contract.body import parse
from contract.errors import ApiError
from contract.responses.request import ResponsesRequest

SHELL = {"type": "custom", "name": "shell", "description": "Runs it.", "format": {"type": "text"}}
ADD = {"type": "function", "name": "add", "parameters": {"type": "object"}}


def read(**fields: Any) -> ResponsesRequest:
    """A body with these fields."""
    return parse(ResponsesRequest, json.dumps({"model": "m", "input": "x", **fields}).encode())


def test_custom_tool_is_that_of_a_chat_and_repeated_as_it_came() -> None:
    request = read(tools=[SHELL], tool_choice={"type": "custom", "name": "shell"})
    assert request.chat.custom_tools == {"shell"}
    assert request.chat.is_tool_forced
    assert request.echo()["tools"] == [SHELL]
    assert request.echo()["tool_choice"] == {"type": "custom", "name": "shell"}


def test_allowed_tools_are_those_that_the_model_knows_of() -> None:
    some = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]}
    request = read(tools=[SHELL, ADD], tool_choice=some)
    assert [tool.name for tool in request.chat.offered.values()] == ["add"]
    assert request.chat.is_tool_forced
    assert request.echo()["tool_choice"] == some


def test_custom_calls_and_their_outputs_are_turns() -> None:
    called = {"type": "custom_tool_call", "call_id": "c", "name": "shell", "input": "ls"}
    answered = {"type": "custom_tool_call_output", "call_id": "c", "output": "a"}
    assistant, tool = read(input=[called, answered]).chat.messages
    assert assistant.tool_calls
    assert assistant.tool_calls[0].model_dump()["custom"] == {"name": "shell", "input": "ls"}
    assert (tool.role, tool.tool_call_id) == ("tool", "c")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {"tools": [SHELL | {"format": {"type": "grammar", "syntax": "lark", "definition": "x"}}]},
            "tools[0].format.type",
        ),
        ({"tools": [ADD], "tool_choice": {"type": "custom", "name": "add"}}, None),
        ({"tools": [ADD], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice.tools"),
    ],
    ids=["a grammar", "a choice of the wrong kind", "none allowed"],
)
def test_refused(fields: dict[str, Any], param: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        read(**fields)
    assert (caught.value.fault.status, caught.value.param) == (400, param)
