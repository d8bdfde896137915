"""Anthropic's wire: what a body may say, what chat is asked for it, and calls among text in a stream."""

from typing import Any

import pytest

from contract.body import validated
from contract.chat.engine import ChatBatch
from contract.chat.request import ChatRequest
from contract.chat.thinking import check_fits_model
from contract.errors import IMAGES_UNSUPPORTED, INVALID_REQUEST, ApiError
from contract.limits import MAX_IMAGES, MAX_STOPS
from contract.messages.reply import MessageEvents
from contract.messages.request import Conversation, MessagesRequest
from contract.messages.translation import FAILED, chat_request
from contract.wires import error_body, event
from tests.contract.bodies import Row, check_refused, refusal, turns_of
from tests.contract.test_chat_tools import stanza
from tests.scripted import MODEL
from tests.sdk import added_up

PIXEL = "iVBORw0KGgo="


def image(**source: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL} | source}


IMAGE = image()
USER = {"role": "user", "content": "hello"}
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}
BODY: dict[str, Any] = {"model": MODEL, "max_tokens": 50, "messages": [USER]}


def asked(**fields: Any) -> ChatRequest:
    return chat_request(validated(MessagesRequest, BODY | fields))


def test_errors_of_the_chat_name_the_fields_of_this_wire() -> None:
    for chat, here in (
        ("tools[12].function.parameters", "tools[12].input_schema"),
        ("tools[0].function.name", "tools[0].name"),
        ("response_format", "output_config.format"),
        ("messages[0].content", "messages[0].content"),
    ):
        error = error_body(INVALID_REQUEST(f"`{chat}` is bad", param=chat), "req_1")["error"]
        assert (error["param"], error["message"]) == (here, f"`{here}` is bad")
    shown = asked(system="be kind", **user(image()))  # as the second message of the chat
    assert refusal(check_fits_model, shown, stanza(), fault=IMAGES_UNSUPPORTED).param == "messages"


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def result_of(kind: str) -> dict[str, Any]:
    return user({"type": "tool_result", "tool_use_id": "a", "content": [{"type": kind}]})


def thinks(tokens: int) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


FAR = {"type": "image", "source": {"type": "url", "url": "https://a/b"}}
SOURCE = "messages[0].content[0].source"
SEARCH: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
BASH = {"type": "bash_20250124", "name": "bash"}
REFUSED: dict[str, Row] = {
    "no max_tokens": ({"max_tokens": None}, "max_tokens", "integer"),
    "less than no answer": ({"max_tokens": -1}, "max_tokens", "send at least 0"),
    "no messages": ({"messages": []}, "messages", "at least 1"),
    "another role": ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role", "`assistant`"),
    "no content": ({"messages": [{"role": "user"}]}, "messages[0].content", "missing"),
    "empty content": ({"messages": [{"role": "user", "content": []}]}, "messages[0]", "empty"),
    "content of another kind": (
        {"messages": [{"role": "user", "content": 3}]},
        "messages[0].content",
        "number was sent; send a string or an array",
    ),
    "a prefilled answer": ({"messages": [USER, {"role": "assistant", "content": "x"}]}, None, "does not continue"),
    "temperature above 1": ({"temperature": 1.01}, "temperature", "send at most 1"),
    "temperature below 0": ({"temperature": -0.01}, "temperature", "send at least 0"),
    "fewer than no tokens to draw from": ({"top_k": -1}, "top_k", "send at least 0"),
    "top_p below 0": ({"top_p": -0.01}, "top_p", "send at least 0"),
    "too many stop sequences": ({"stop_sequences": ["x"] * (MAX_STOPS + 1)}, "stop_sequences", str(MAX_STOPS)),
    "an empty stop sequence": ({"stop_sequences": [""]}, "stop_sequences[0]", "at least 1"),
    "a document": (user({"type": "document", "source": {}}), "messages[0].content[0]", "`document`"),
    "a block without a type": (user({"text": "x"}), "messages[0].content[0]", "without a type"),
    "no block at all": (user("x"), "messages[0].content[0]", "without a type"),
    "text in text": (user({"type": "text", "text": {"text": "x"}}), "messages[0].content[0].text", "an object"),
    "text without text": (user({"type": "text"}), "messages[0].content[0].text", "missing"),
    "a system without text": ({"system": [{"type": "text"}]}, "system[0].text", "missing"),
    "an image elsewhere": (user(FAR), SOURCE, "not fetched"),
    "an image of another format": (user(image(media_type="image/bmp")), f"{SOURCE}.media_type", "image/png"),
    "an image that is no base64": (user(image(data="?")), f"{SOURCE}.data", "base64"),
    "a call of the user": (user({"type": "tool_use", "id": "a", "name": "x", "input": {}}), "messages[0]", "tool_use"),
    "an image of the assistant": ({"messages": [{"role": "assistant", "content": [IMAGE]}]}, "messages[0]", "belong"),
    "too many images": (user(*[IMAGE] * (MAX_IMAGES + 1)), None, "16 images"),
    "a result in a result": (result_of("mcp_tool_result"), "messages[0].content[0].content[0]", "`mcp_tool_result`"),
    "a call of a server of the user": (user({"type": "server_tool_use"}), "messages[0]", "does not belong"),
    "a document of a tool": (result_of("document"), "messages[0].content[0].content[0]", "`document`"),
    "a tool of theirs that the client runs": ({"tools": [BASH]}, "tools[0]", "one that you run yourself as `custom`"),
    "one of their tools alone": (
        {"tools": [TOOL, SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}},
        None,
        "`web_search`, which is a server tool",
    ),
    "any of their tools": ({"tools": [SEARCH], "tool_choice": {"type": "any"}}, None, "only server tools"),
    "a tool without a schema": ({"tools": [{"name": "x"}]}, "tools[0].input_schema", "missing"),
    "a tool whose name has spaces": ({"tools": [TOOL | {"name": "a b"}]}, "tools[0].name", "text that matches"),
    "two tools of one name": ({"tools": [TOOL, TOOL]}, None, "same name"),
    "any of no tools": ({"tool_choice": {"type": "any"}}, None, "`tools` is empty"),
    "a tool that is not there": ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, None, "`x`"),
    "a tool without a name": ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice", "`name`"),
    "a choice as a string": ({"tools": [TOOL], "tool_choice": "auto"}, "tool_choice", "send an object"),
    "thinking without a budget": ({"thinking": {"type": "enabled"}}, "thinking", "budget_tokens"),
    "too small a budget": ({"max_tokens": 5000} | thinks(1023), "thinking.budget_tokens", "1024"),
    "a budget as large as the answer": ({"max_tokens": 1024} | thinks(1024), None, "less than `max_tokens`"),
    "another effort": ({"output_config": {"effort": "huge"}}, "output_config.effort", "`low`"),
    "an answer in XML": ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type", "json_schema"),
    "a schema that costs too much": (
        {"output_config": {"format": {"type": "json_schema", "schema": {"enum": ["x" * 10**6]}}}},
        "response_format",
        "response_format",
    ),
    "servers of tools": ({"mcp_servers": [{"type": "url"}]}, None, "`mcp_servers` is not supported"),
    "a container": ({"container": "x"}, None, "`container` is not supported"),
}


def test_a_body_that_cannot_be_served_is_refused() -> None:
    check_refused(asked, REFUSED)


def test_max_tokens_must_be_there_but_not_to_count() -> None:
    body = {"model": MODEL, "messages": [USER]}
    assert chat_request(validated(Conversation, body)).budget is None
    with pytest.raises(ApiError, match="`max_tokens` is missing"):
        validated(MessagesRequest, body)


def test_what_only_anthropic_has_is_ignored() -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    marked = text("hello") | cached | {"citations": None}
    more = {"metadata": {"user_id": "u"}, "service_tier": "auto", "container": None, "mcp_servers": []}
    assert asked(**more, **cached, inference_geo="us", **user(marked)) == asked()
    # Strings and blocks mean the same.
    assert asked(system="be kind") == asked(system=[text("be kind")], **user(text("hello")))


def test_fields_of_the_answer_reach_chat() -> None:
    request = asked(temperature=0.5, top_p=0.9, top_k=40, stop_sequences=["END"], stream=True)
    assert (request.temperature, request.top_p, request.top_k, request.stop) == (0.5, 0.9, 40, ["END"])
    assert (request.budget, request.stream, request.include_usage) == (50, True, True)


def test_turns_of_one_role_are_one_and_a_system_turn_may_stand_in_between() -> None:
    turns = [USER, {"role": "user", "content": [text("there")]}, {"role": "assistant", "content": "yes"}, USER]
    assert [(m["role"], [p["text"] for p in m["content"]]) for m in turns_of(asked(messages=turns))] == [
        ("user", ["hello", "there"]),
        ("assistant", ["yes"]),
        ("user", ["hello"]),
    ]
    turns = [USER, {"role": "system", "content": "now be brief"}, USER]
    assert [m["role"] for m in turns_of(asked(system="x", messages=turns))] == ["system", "user", "system", "user"]
    turns = [USER, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}, USER]
    assert turns_of(asked(messages=turns))[1] == {"role": "assistant", "content": []}


def test_calls_and_results_become_those_of_chat() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"where": "hür"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("a cat"), IMAGE]}
    broken = {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no light", "is_error": True}
    silent = {"type": "tool_result", "tool_use_id": "toolu_3"}
    answer = [{"type": "thinking", "thinking": "hm", "signature": ""}, text("I look"), call]
    results = [text("so?"), result, broken, silent]
    turns = [USER, {"role": "assistant", "content": answer}, {"role": "user", "content": results}]
    look = {"id": "toolu_1", "type": "function", "function": {"name": "look", "arguments": '{"where": "hür"}'}}
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    assert turns_of(asked(messages=turns, tools=[TOOL]))[1:] == [
        {"role": "assistant", "content": [text("I look")], "tool_calls": [look]},
        {"role": "tool", "content": [text("a cat")], "tool_call_id": "toolu_1"},
        {"role": "tool", "content": [text(FAILED), text("no light")], "tool_call_id": "toolu_2"},
        {"role": "tool", "content": [], "tool_call_id": "toolu_3"},
        {"role": "user", "content": [image, text("so?")]},
    ]


def test_tools_of_their_servers_are_left_out_and_told() -> None:
    kinds = ("web_search_20250305", "web_fetch_20250910", "code_execution_20250825", "mcp_toolset")
    for choice in (None, {"type": "auto"}, {"type": "any"}, {"type": "tool", "name": TOOL["name"]}):
        requests = [asked(tools=[{"type": kind, "name": "web_search"}, TOOL], tool_choice=choice) for kind in kinds]
        names = [[tool.name for tool in request.offered.values()] for request in requests]
        assert names == [[TOOL["name"]]] * len(kinds)
        assert [request.left_out for request in requests] == [["tools[0]"]] * len(kinds)


def test_what_tools_of_servers_did_in_earlier_turns_is_left_out_and_told() -> None:
    kinds = ("server_tool_use", "web_search_tool_result", "bash_code_execution_tool_result", "mcp_tool_use")
    blocks = [text("I look"), *({"type": kind, "id": "srvtoolu_1", "content": [{"type": "x"}]} for kind in kinds)]
    turns = {"messages": [USER, {"role": "assistant", "content": blocks}, USER], "tools": [SEARCH, TOOL]}
    assert turns_of(asked(**turns))[1] == {"role": "assistant", "content": [text("I look")]}
    left_out = [f"messages[1].content[{place}]" for place in range(1, len(blocks))]
    assert validated(MessagesRequest, BODY | turns).left_out == ["tools[0]", *left_out]


def test_the_choice_of_a_tool_is_that_of_chat() -> None:
    choices: list[tuple[dict[str, Any], str, bool | None]] = [
        ({"type": "auto"}, "auto", None),
        ({"type": "none"}, "none", None),
        ({"type": "any"}, "required", None),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
        ({"type": "auto", "disable_parallel_tool_use": False}, "auto", None),
        ({"type": "tool", "name": "look"}, "look", None),
    ]
    for choice, expected, parallel in choices:
        request = asked(tools=[TOOL | {"type": "custom"}], tool_choice=choice)
        chosen: Any = request.tool_choice
        assert (getattr(chosen, "name", chosen), request.parallel_tool_calls) == (expected, parallel), choice
        assert [each.function.parameters for each in request.offered.values()] == [TOOL["input_schema"]]


def test_thinking_is_the_effort_of_chat() -> None:
    efforts: list[tuple[dict[str, Any], str | None]] = [
        ({}, None),
        ({"thinking": {"type": "disabled"}}, "none"),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}, "none"),
        ({"thinking": {"type": "adaptive"}}, "medium"),
        (thinks(1024) | {"max_tokens": 1025}, "medium"),
        ({"thinking": {"type": "disabled"}, "max_tokens": 0}, "none"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, "max"),
        ({"output_config": {"effort": "low"}}, "low"),
    ]
    assert [asked(**fields).reasoning_effort for fields, _ in efforts] == [effort for _, effort in efforts]


def test_a_schema_of_the_answer_is_followed() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    form = asked(output_config={"format": {"type": "json_schema", "schema": schema}}).response_format
    assert form.json_schema.schema_ == schema


BEGUN = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "g", "arguments": '{"a": "x"'}}
ENDED = {"index": 0, "function": {"arguments": ', "b": 7}'}}
NEXT = {"index": 1, "id": "call_2", "type": "function", "function": {"name": "g", "arguments": "{}"}}
USED = [{"type": "tool_use", "id": "call_1", "name": "g", "input": {"a": "x", "b": 7}}]
NEXT_USED = {"type": "tool_use", "id": "call_2", "name": "g", "input": {}}


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
def test_a_call_is_one_block_and_text_inside_it_comes_after_it(field: str) -> None:
    def streamed(*deltas: Any) -> Any:
        """Content that a stream adds up to. A string is a piece of `field`, and all else a piece of a call."""
        events, chunks = MessageEvents(MODEL), b""
        for delta in ({field: each} if isinstance(each, str) else {"tool_calls": [each]} for each in deltas):
            chunks += event({"id": "chatcmpl-1", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        return added_up(events.of(ChatBatch(chunks, 1, 1)) + b"".join(events.end()))["content"]

    said = {"type": "text", "text": "so \nit is"}
    if field == "reasoning_content":
        said = {"type": "thinking", "thinking": "so \nit is", "signature": ""}
    assert streamed(BEGUN, "\n", ENDED) == streamed(BEGUN, ENDED, "\n") == USED
    assert streamed(BEGUN, "so ", "\n", ENDED, "it is", NEXT) == [*USED, said, NEXT_USED]
    assert streamed(BEGUN, ENDED, "\n", NEXT, "so \n", "it is") == [*USED, NEXT_USED, said]
    assert streamed("so \n", "it is", BEGUN, ENDED, NEXT) == [said, *USED, NEXT_USED]
