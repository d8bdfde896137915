"""Tools of POST /responses beside functions: those that take text, and those that another server would run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.bodies import responses_request
from tests.contract.test_responses_namespaces import CRM, PLAN, SEARCH, offered

SHELL = {"type": "custom", "name": "shell", "description": "Runs it.", "format": {"type": "text"}}
ADD = {"type": "function", "name": "add", "parameters": {"type": "object"}}


def test_custom_tool_is_that_of_a_chat_and_repeated_as_it_came() -> None:
    request = responses_request(tools=[SHELL], tool_choice={"type": "custom", "name": "shell"})
    assert request.chat.custom_tools == {"shell"}
    assert request.chat.is_tool_forced
    assert request.echo()["tools"] == [SHELL]
    assert request.echo()["tool_choice"] == {"type": "custom", "name": "shell"}


def test_allowed_tools_are_those_that_the_model_knows_of() -> None:
    some = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]}
    request = responses_request(tools=[SHELL, ADD], tool_choice=some)
    assert [tool.name for tool in request.chat.offered.values()] == ["add"]
    assert request.chat.is_tool_forced
    assert request.echo()["tool_choice"] == some


def test_custom_calls_and_their_outputs_are_turns() -> None:
    called = {"type": "custom_tool_call", "call_id": "c", "name": "shell", "input": "ls"}
    answered = {"type": "custom_tool_call_output", "call_id": "c", "output": "a"}
    assistant, tool = responses_request(input=[called, answered]).chat.messages
    assert assistant.tool_calls
    assert assistant.tool_calls[0].model_dump()["custom"] == {"name": "shell", "input": "ls"}
    assert (tool.role, tool.tool_call_id) == ("tool", "c")


BUILT_IN = """
web_search web_search_2025_08_26 web_search_preview web_search_preview_2025_03_11 file_search code_interpreter
image_generation computer computer_use computer_use_preview mcp local_shell shell apply_patch tool_search
programmatic_tool_calling
"""


@pytest.mark.parametrize("kind", BUILT_IN.split())
@pytest.mark.parametrize("choice", [None, "auto", "required", {"type": "function", "name": "plan"}])
def test_built_in_tools_are_left_out_and_told(kind: str, choice: Any) -> None:
    request = responses_request(tools=[CRM, {"type": kind}, PLAN], tool_choice=choice)
    assert offered(request) == ["crm__find", "crm__note", "plan"]
    assert request.left_out == ["tools[1]"]


def test_nothing_is_told_where_nothing_was_left_out() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    assert responses_request(input=[reasoning, {"role": "user", "content": "x"}], tools=[CRM, PLAN]).left_out == []


def test_what_tools_of_another_server_did_is_passed_over_and_told() -> None:
    searched = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    request = responses_request(input=[searched, {"role": "user", "content": "x"}, searched], tools=[SEARCH])
    assert [message.role for message in request.chat.messages] == ["user"]
    assert request.left_out == ["input[0]", "input[2]", "tools[0]"]


LOCAL_SHELL = {
    "type": "local_shell_call",
    "id": "l",
    "call_id": "c",
    "action": {"type": "exec", "command": ["ls"], "env": {}},
}
PRINTED = [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
PATCH = {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "a"}}


@pytest.mark.parametrize(
    ("call", "output", "name", "text"),
    [
        (LOCAL_SHELL, {"type": "local_shell_call_output", "id": "c", "output": "a"}, "local_shell", "a"),
        (LOCAL_SHELL, {"type": "function_call_output", "call_id": "c", "output": "a"}, "local_shell", "a"),
        (
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "call_id": "c", "output": PRINTED},
            "shell",
            json.dumps(PRINTED),
        ),
        (PATCH, {"type": "apply_patch_call_output", "call_id": "c", "status": "failed"}, "apply_patch", "failed"),
    ],
    ids=["local shell", "local shell, answered as a function", "shell", "patch"],
)
def test_calls_of_built_in_tools_that_clients_run_are_turns(
    call: dict[str, Any], output: dict[str, Any], name: str, text: str
) -> None:
    assistant, tool = responses_request(input=[call, output]).chat.messages
    assert assistant.tool_calls
    function = assistant.tool_calls[0].as_function.function
    assert (function.name, json.loads(function.arguments)) == (name, call.get("action") or call.get("operation"))
    assert (tool.role, tool.tool_call_id, [part.text for part in tool.content or ()]) == ("tool", "c", [text])


def test_images_of_tools_are_the_users_after_the_last_output_of_a_turn() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    calls = [{"type": "function_call", "call_id": one, "name": "look", "arguments": "{}"} for one in "ab"]
    first = {"type": "function_call_output", "call_id": "a", "output": [image, {"type": "input_text", "text": "seen"}]}
    second = {"type": "function_call_output", "call_id": "b", "output": "dark"}
    for rest, roles in ([], []), ([{"role": "assistant", "content": "A cat."}], ["assistant"]):
        turns = responses_request(input=[*calls, first, second, *rest]).chat.messages
        assert [turn.role for turn in turns] == ["assistant", "tool", "tool", "user", *roles]
        assert [[part.type for part in turn.content or ()] for turn in turns[1:4]] == [
            ["text"],
            ["text"],
            ["image_url"],
        ]
