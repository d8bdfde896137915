"""Tools of POST /responses: namespaces, custom tools, and tools that another server would run."""

import json
import re
from typing import Any, cast

from contract.chat.engine import ChatReply
from contract.chat.tools import MAX_TOOLS, NAME_PATTERN
from contract.responses.reply import ResponseHead, whole
from contract.responses.request import ResponsesRequest
from tests.contract.bodies import Row, check_refused, refused, responses_request

SEARCH = {"type": "web_search", "external_web_access": False}
PLAN = {"type": "function", "name": "plan", "parameters": {"type": "object"}}
FIND = {"type": "function", "name": "find", "description": "Finds one.", "parameters": {"type": "object"}}
NOTE = {"type": "custom", "name": "note"}
CRM = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [FIND, NOTE]}


def offered(request: ResponsesRequest) -> list[str]:
    return [tool.function.name for tool in request.chat.offered.values()]


def grouped(namespace: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "name": name} for name in names]
    return {"type": "namespace", "name": namespace, "description": "", "tools": tools}


def called(request: ResponsesRequest, name: str) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": "{}"}}
    choice = {"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
    usage = {"completion_tokens_details": {"reasoning_tokens": 0}}
    reply = ChatReply(cast(Any, {"choices": [choice], "usage": usage}), 1, 1)
    item: Any = whole(ResponseHead(request, "req_1", 1, "m"), reply)["output"][0]
    return dict(item)


def test_a_namespace_is_flat_to_the_model_described_before_its_first_tool_and_named_in_the_call() -> None:
    request = responses_request(tools=[PLAN, CRM])
    descriptions = [tool.function.description for tool in request.chat.offered.values()]
    assert descriptions == [None, "Customers.\n\nFinds one.", None]
    assert offered(request) == ["plan", "crm__find", "crm__note"]
    assert request.chat.custom_tools == {"crm__note"}
    found = called(request, "crm__find")
    assert (found["type"], found["namespace"], found["name"]) == ("function_call", "crm", "find")
    assert "namespace" not in called(request, "plan")
    assert called(request, "nobody__offered")["name"] == "nobody__offered"


def test_a_reply_repeats_namespaces_as_they_came_and_nothing_that_was_left_out() -> None:
    tools = responses_request(tools=[PLAN, SEARCH, CRM]).echo()["tools"]
    assert [tool["type"] for tool in tools] == ["function", "namespace"]
    assert (tools[1]["name"], tools[1]["description"]) == ("crm", "Customers.")
    assert [tool["name"] for tool in tools[1]["tools"]] == ["find", "note"]
    assert tools[1]["tools"][0]["description"] == "Finds one."


def test_calls_that_come_back_have_the_name_that_the_model_knows() -> None:
    call = {"type": "function_call", "call_id": "c1", "namespace": "crm", "name": "find", "arguments": "{}"}
    custom = {"type": "custom_tool_call", "call_id": "c2", "namespace": "crm", "name": "note", "input": "x"}
    plain = {"type": "function_call", "call_id": "c3", "namespace": None, "name": "plan", "arguments": "{}"}
    for tools in ([CRM], []):
        (turn,) = responses_request(input=[call, custom, plain, plain | {"namespace": ""}], tools=tools).chat.messages
        names = [call.as_function.function.name for call in turn.tool_calls or ()]
        assert names == ["crm__find", "crm__note", "plan", "plan"]


def test_names_fit_the_model_whatever_the_namespace() -> None:
    for namespace, name, is_kept in (
        *(("n" * length, "x" * 30, length <= 96) for length in (95, 96, 97)),  # 127 to 129 in all
        ("n" * 256, "x" * 128, False),
        ("docs.search", "find", False),
        ("Büro", "find", False),
    ):
        request = responses_request(tools=[grouped(namespace, name), grouped(f"{namespace[:-1]}_", name)])
        first, second = offered(request)
        assert (first == f"{namespace}__{name}") is is_kept, namespace
        assert first != second
        assert all(re.fullmatch(NAME_PATTERN, one) for one in (first, second))
        assert called(request, first)["namespace"] == namespace


def test_names_that_would_be_one_are_told_apart() -> None:
    tools = [grouped("a", "b__c"), grouped("a__b", "c"), {"type": "function", "name": "a__b__c"}]
    request = responses_request(tools=tools)
    names = offered(request)
    assert len(set(names)) == 3
    paths = [(item.get("namespace"), item["name"]) for item in (called(request, name) for name in names)]
    assert paths == [("a", "b__c"), ("a__b", "c"), (None, "a__b__c")]
    again = {"type": "function_call", "call_id": "c", "namespace": "a__b", "name": "c", "arguments": "{}"}
    (turn,) = responses_request(input=[again], tools=tools).chat.messages
    assert turn.tool_calls[0].as_function.function.name == names[1]


def test_a_choice_names_a_tool_of_a_namespace_or_before_any_other_the_tool_without_one() -> None:
    names: list[tuple[dict[str, Any], str]] = [
        ({"type": "function", "name": "find"}, "crm__find"),
        ({"type": "function", "name": "find", "namespace": "crm"}, "crm__find"),
        ({"type": "custom", "name": "note"}, "crm__note"),
        ({"type": "function", "name": "plan"}, "plan"),
    ]
    for choice, name in names:
        request = responses_request(tools=[PLAN, CRM], tool_choice=choice)
        chosen: Any = request.chat.tool_choice
        assert (request.chat.is_tool_forced, chosen.name, request.echo()["tool_choice"]) == (True, name, choice)
        some = {"type": "allowed_tools", "mode": "auto", "tools": [choice, SEARCH]}
        assert offered(responses_request(tools=[PLAN, CRM, SEARCH], tool_choice=some)) == [name]
    chosen = responses_request(tools=[CRM, FIND], tool_choice=CHOICE).chat.tool_choice
    assert chosen.name == "find"


CHOICE = {"type": "function", "name": "find"}
OF_NONE_HERE = {"type": "allowed_tools", "mode": "required", "tools": [SEARCH]}
REFUSED: dict[str, Row] = {
    "one of two": ({"tools": [CRM, grouped("hr", "find")], "tool_choice": CHOICE}, "tool_choice", "2 namespaces have"),
    "one of another namespace": ({"tools": [CRM], "tool_choice": CHOICE | {"namespace": "hr"}}, None, "not in `tools`"),
    "two tools of one name": ({"tools": [grouped("crm", "find", "find")]}, None, "same name"),
    "two namespaces of one name": ({"tools": [CRM, CRM]}, None, "same name"),
    "a namespace of nothing": ({"tools": [PLAN, {"type": "namespace", "name": "crm"}]}, "tools[1].tools", "missing"),
    "a nested namespace": ({"tools": [CRM | {"tools": [FIND, CRM]}]}, "tools[0].tools[1]", "`function` or `custom`"),
    "a namespace without a name": ({"tools": [CRM | {"name": ""}]}, "tools[0].name", "at least 1"),
    "a tool whose name has spaces": ({"tools": [grouped("crm", "a b")]}, "tools[0].tools[0].name", "text that matches"),
    "a dear schema in a namespace": (
        {"tools": [SEARCH, CRM | {"tools": [FIND, FIND | {"name": "x", "strict": True, "parameters": {"$ref": "x"}}]}]},
        "tools[1].tools[1].parameters",
        "the JSON schema in `tools[1].tools[1].parameters`",
    ),
    "a grammar in a namespace": (
        {"tools": [CRM | {"tools": [FIND, NOTE | {"format": {"type": "grammar"}}]}]},
        "tools[0].tools[1].format.type",
        "free text",
    ),
    "a search alone": ({"tools": [PLAN, SEARCH], "tool_choice": {"type": "web_search"}}, "tool_choice", "runs none"),
    "a call of nothing but a search": ({"tools": [SEARCH], "tool_choice": "required"}, None, "runs no"),
    "one of nothing but a search": ({"tools": [PLAN, SEARCH], "tool_choice": OF_NONE_HERE}, None, "runs no"),
}


def test_what_cannot_be_served_is_refused() -> None:
    check_refused(responses_request, REFUSED)


def test_tools_of_namespaces_count_as_tools() -> None:
    tools = {n: [PLAN, grouped("n", *(f"f{i}" for i in range(n - 1)))] for n in range(MAX_TOOLS - 1, MAX_TOOLS + 2)}
    for count in (MAX_TOOLS - 1, MAX_TOOLS):
        assert len(offered(responses_request(tools=tools[count]))) == count
    assert refused(responses_request, tools=tools[MAX_TOOLS + 1])[0] == "tools"


SHELL = {"type": "custom", "name": "shell", "description": "Runs it.", "format": {"type": "text"}}
ADD = {"type": "function", "name": "add", "parameters": {"type": "object"}}


def test_a_custom_tool_is_that_of_a_chat_and_the_model_knows_of_those_that_are_allowed() -> None:
    some = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]}
    for tools, choice, name in (([SHELL], {"type": "custom", "name": "shell"}, "shell"), ([SHELL, ADD], some, "add")):
        request = responses_request(tools=tools, tool_choice=choice)
        assert (offered(request), request.chat.custom_tools) == ([name], {"shell"})
        assert request.chat.is_tool_forced, name
        assert request.echo()["tools"] == [SHELL, ADD | {"description": None, "strict": None}][: len(tools)]
        assert request.echo()["tool_choice"] == choice


def test_custom_calls_and_their_outputs_are_turns() -> None:
    called = {"type": "custom_tool_call", "call_id": "c", "name": "shell", "input": "ls"}
    answered = {"type": "custom_tool_call_output", "call_id": "c", "output": "a"}
    assistant, tool = responses_request(input=[called, answered]).chat.messages
    assert assistant.tool_calls[0].model_dump()["custom"] == {"name": "shell", "input": "ls"}
    assert (tool.role, tool.tool_call_id) == ("tool", "c")


BUILT_IN = """
web_search web_search_2025_08_26 web_search_preview web_search_preview_2025_03_11 file_search code_interpreter
image_generation computer computer_use computer_use_preview mcp local_shell shell apply_patch tool_search
programmatic_tool_calling
"""


def test_built_in_tools_are_left_out_and_told() -> None:
    for choice in (None, "auto", "required", {"type": "function", "name": "plan"}):
        for kind in BUILT_IN.split():
            request = responses_request(tools=[CRM, {"type": kind}, PLAN], tool_choice=choice)
            assert (offered(request), request.left_out) == (["crm__find", "crm__note", "plan"], ["tools[1]"]), kind


def test_what_tools_of_another_server_did_is_passed_over_and_told() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    assert responses_request(input=[reasoning, {"role": "user", "content": "x"}], tools=[CRM, PLAN]).left_out == []
    searched = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    request = responses_request(input=[searched, {"role": "user", "content": "x"}, searched], tools=[SEARCH])
    assert [message.role for message in request.chat.messages] == ["user"]
    assert request.left_out == ["input[0]", "input[2]", "tools[0]"]


LIST = {"type": "exec", "command": ["ls"], "env": {}}
LOCAL_SHELL = {"type": "local_shell_call", "id": "l", "call_id": "c", "action": LIST}
PRINTED = [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
PATCH = {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "a"}}


CALLS: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    (LOCAL_SHELL, {"type": "local_shell_call_output", "id": "c", "output": "a"}, "local_shell", "a"),
    (LOCAL_SHELL, {"type": "function_call_output", "call_id": "c", "output": "a"}, "local_shell", "a"),
    (
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "c", "output": PRINTED},
        "shell",
        json.dumps(PRINTED),
    ),
    (PATCH, {"type": "apply_patch_call_output", "call_id": "c", "status": "failed"}, "apply_patch", "failed"),
]


def test_calls_of_built_in_tools_that_clients_run_are_turns() -> None:
    for call, output, name, text in CALLS:
        assistant, tool = responses_request(input=[call, output]).chat.messages
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
        assert [[part.type for part in turn.content] for turn in turns[1:4]] == [["text"], ["text"], ["image_url"]]
