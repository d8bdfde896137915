"""Anthropic's wire: what a body may say and what chat is asked for it, replies, events, errors."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.body import validated
from contract.chat.request import MAX_IMAGES, MAX_STOPS, ChatRequest
from contract.errors import FAULTS, ApiError
from contract.messages.errors import error_body
from contract.messages.events import PING, MessageEvents, failed
from contract.messages.reply import StopReason, arguments, message
from contract.messages.request import MIN_THINKING_TOKENS, Conversation, MessagesRequest
from contract.messages.translation import FAILED, chat_request
from contract.wires import ANTHROPIC, OPENAI, error_shape
from tests.messages import added_up
from tests.scripted import MODEL, Call, Script

PIXEL = "iVBORw0KGgo="
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
USER = {"role": "user", "content": "hello"}
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}
BODY: dict[str, Any] = {"model": MODEL, "max_tokens": 50, "messages": [USER]}


def asked(**fields: Any) -> ChatRequest:
    """The chat request for a body with these fields."""
    return chat_request(validated(MessagesRequest, BODY | fields))


def said(request: ChatRequest) -> list[dict[str, Any]]:
    """Messages of a chat request, without what they do not say."""
    return [message.model_dump(exclude_none=True) for message in request.messages]


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


# --- bodies ----------------------------------------------------------------------------------------------------------


def user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


REFUSED = {
    "no max_tokens": ({"max_tokens": None}, "max_tokens", "integer"),
    "no room for an answer": ({"max_tokens": 0}, "max_tokens", "greater"),
    "no messages": ({"messages": []}, "messages", "at least 1"),
    "another role": ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role", "'assistant'"),
    "no content": ({"messages": [{"role": "user"}]}, "messages[0].content", "missing"),
    "empty content": ({"messages": [{"role": "user", "content": []}]}, "messages[0]", "empty"),
    "content of another kind": ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content", "list"),
    "a prefilled answer": ({"messages": [USER, {"role": "assistant", "content": "x"}]}, None, "not continued"),
    "temperature above 1": ({"temperature": 1.01}, "temperature", "less"),
    "temperature below 0": ({"temperature": -0.01}, "temperature", "greater"),
    "top_p of 0": ({"top_p": 0}, "top_p", "greater"),
    "too large a top_k": ({"top_k": 1001}, "top_k", "1000"),
    "too many stop sequences": ({"stop_sequences": ["x"] * (MAX_STOPS + 1)}, "stop_sequences", str(MAX_STOPS)),
    "an empty stop sequence": ({"stop_sequences": [""]}, "stop_sequences[0]", "at least 1"),
    "a document": (user({"type": "document", "source": {}}), "messages[0].content[0]", "`document`"),
    "a block without a type": (user({"text": "x"}), "messages[0].content[0]", "without a type"),
    "no block at all": (user("x"), "messages[0].content[0]", "without a type"),
    "text without text": (user({"type": "text"}), "messages[0].content[0].text", "missing"),
    "an image elsewhere": (
        user({"type": "image", "source": {"type": "url", "url": "https://a/b"}}),
        "messages[0].content[0].source",
        "not fetched",
    ),
    "an image of another format": (
        user({"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": PIXEL}}),
        "messages[0].content[0].source.media_type",
        "image/png",
    ),
    "an image that is no base64": (
        user({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "?"}}),
        "messages[0].content[0].source.data",
        "base64",
    ),
    "a call of the user": (user({"type": "tool_use", "id": "a", "name": "x", "input": {}}), "messages[0]", "tool_use"),
    "an image of the assistant": (
        {"messages": [{"role": "assistant", "content": [IMAGE]}, USER]},
        "messages[0]",
        "does not belong",
    ),
    "too many images": (user(*[IMAGE] * (MAX_IMAGES + 1)), None, "16 images"),
    "a document of a tool": (
        user({"type": "tool_result", "tool_use_id": "a", "content": [{"type": "document"}]}),
        "messages[0].content[0].content[0]",
        "`document`",
    ),
    "input that is no object": (
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "x", "input": []}]}]},
        "messages[0].content[0].input",
        "dictionary",
    ),
    "a tool of theirs": ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]", "web_search_"),
    "a tool without a schema": ({"tools": [{"name": "x"}]}, "tools[0].input_schema", "missing"),
    "a tool whose name has spaces": ({"tools": [TOOL | {"name": "a b"}]}, "tools[0].name", "pattern"),
    "two tools of one name": ({"tools": [TOOL, TOOL]}, None, "same name"),
    "any of no tools": ({"tool_choice": {"type": "any"}}, None, "`tools` is empty"),
    "a tool that is not there": ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, None, "`x`"),
    "a tool without a name": ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice", "`name`"),
    "a choice as a string": ({"tools": [TOOL], "tool_choice": "auto"}, "tool_choice", "dictionary"),
    "thinking without a budget": ({"thinking": {"type": "enabled"}}, "thinking", "budget_tokens"),
    "too small a budget": (
        {"max_tokens": 5000, "thinking": {"type": "enabled", "budget_tokens": MIN_THINKING_TOKENS - 1}},
        "thinking.budget_tokens",
        "1024",
    ),
    "a budget as large as the answer": (
        {"max_tokens": MIN_THINKING_TOKENS, "thinking": {"type": "enabled", "budget_tokens": MIN_THINKING_TOKENS}},
        None,
        "less than `max_tokens`",
    ),
    "another effort": ({"output_config": {"effort": "huge"}}, "output_config.effort", "'low'"),
    "an answer in XML": ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type", "json_schema"),
    "servers of tools": ({"mcp_servers": [{"type": "url"}]}, None, "`mcp_servers` is not served"),
    "a container": ({"container": "x"}, None, "`container` is not served"),
}


@pytest.mark.parametrize(("fields", "param", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_body_that_cannot_be_served_is_refused(fields: dict[str, Any], param: str | None, sentence: str) -> None:
    with pytest.raises(ApiError) as caught:
        asked(**fields)
    assert caught.value.fault is FAULTS["INVALID_REQUEST"]
    assert caught.value.param == param
    assert sentence in caught.value.message


def test_a_schema_that_costs_too_much_is_refused_by_chat() -> None:
    schema = {"properties": {f"a{i}": {"type": "string", "maxLength": 255 - i % 200} for i in range(200)}}
    with pytest.raises(ApiError, match="response_format"):
        asked(output_config={"format": {"type": "json_schema", "schema": schema}})


def test_max_tokens_must_be_there_but_not_to_count() -> None:
    body = {"model": MODEL, "messages": [USER]}
    assert chat_request(validated(Conversation, body)).budget is None
    with pytest.raises(ApiError, match="`max_tokens` is missing"):
        validated(MessagesRequest, body)


def test_what_only_anthropic_has_is_ignored() -> None:
    marked = text("hello") | {"cache_control": {"type": "ephemeral"}, "citations": None}
    more = {
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "cache_control": {"type": "ephemeral"},
        "container": None,
        "mcp_servers": [],
        "inference_geo": "us",
    }
    assert asked(**more, **user(marked)) == asked()


# --- what chat is asked ----------------------------------------------------------------------------------------------


def test_strings_and_blocks_mean_the_same() -> None:
    assert asked(system="be kind") == asked(system=[text("be kind")], **user(text("hello")))


def test_fields_of_the_answer_reach_chat() -> None:
    request = asked(temperature=0.5, top_p=0.9, top_k=40, stop_sequences=["END"], stream=True)
    assert (request.temperature, request.top_p, request.top_k, request.stop) == (0.5, 0.9, 40, ["END"])
    assert (request.budget, request.stream, request.include_usage) == (50, True, True)


def test_turns_of_one_role_are_one() -> None:
    turns = [USER, {"role": "user", "content": [text("there")]}, {"role": "assistant", "content": "yes"}, USER]
    assert [(m["role"], [p["text"] for p in m["content"]]) for m in said(asked(messages=turns))] == [
        ("user", ["hello", "there"]),
        ("assistant", ["yes"]),
        ("user", ["hello"]),
    ]


def test_a_system_turn_may_stand_in_between() -> None:
    turns = [USER, {"role": "system", "content": "now be brief"}, USER]
    assert [m["role"] for m in said(asked(system="x", messages=turns))] == ["system", "user", "system", "user"]


def test_calls_and_results_become_those_of_chat() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"where": "hür"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("a cat"), IMAGE]}
    broken = {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no light", "is_error": True}
    silent = {"type": "tool_result", "tool_use_id": "toolu_3"}
    turns = [
        USER,
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, text("I look"), call],
        },
        {"role": "user", "content": [text("so?"), result, broken, silent]},
    ]
    function = {"name": "look", "arguments": '{"where": "hür"}'}
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    assert said(asked(messages=turns, tools=[TOOL]))[1:] == [
        {
            "role": "assistant",
            "content": [text("I look")],
            "tool_calls": [{"id": "toolu_1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": [text("a cat")], "tool_call_id": "toolu_1"},
        {"role": "tool", "content": [text(FAILED), text("no light")], "tool_call_id": "toolu_2"},
        {"role": "tool", "content": [], "tool_call_id": "toolu_3"},
        {"role": "user", "content": [image, text("so?")]},
    ]


def test_only_thoughts_are_an_empty_turn() -> None:
    turns = [USER, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}, USER]
    assert said(asked(messages=turns))[1] == {"role": "assistant", "content": []}


@pytest.mark.parametrize(
    ("choice", "expected", "parallel"),
    [
        ({"type": "auto"}, "auto", None),
        ({"type": "none"}, "none", None),
        ({"type": "any"}, "required", None),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
        ({"type": "auto", "disable_parallel_tool_use": False}, "auto", None),
        ({"type": "tool", "name": "look"}, "look", None),
    ],
)
def test_the_choice_of_a_tool_is_that_of_chat(choice: Any, expected: str, parallel: bool | None) -> None:
    request = asked(tools=[TOOL | {"type": "custom"}], tool_choice=choice)
    chosen = request.tool_choice
    assert (chosen if isinstance(chosen, str) else chosen and chosen.function.name) == expected
    assert request.parallel_tool_calls is parallel
    assert request.tools
    assert request.tools[0].function.parameters == TOOL["input_schema"]


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({}, None),
        ({"thinking": {"type": "disabled"}}, "none"),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}, "none"),
        ({"thinking": {"type": "adaptive"}}, "medium"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1025}, "medium"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, "max"),
        ({"output_config": {"effort": "low"}}, "low"),
    ],
)
def test_thinking_is_the_effort_of_chat(fields: dict[str, Any], effort: str | None) -> None:
    assert asked(**fields).reasoning_effort == effort


def test_a_schema_of_the_answer_is_followed() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    form = asked(output_config={"format": {"type": "json_schema", "schema": schema}}).response_format
    assert form
    assert form.json_schema
    assert form.json_schema.schema_ == schema


# --- replies ---------------------------------------------------------------------------------------------------------

CALLS = (Call("toolu_1", "look", '{"where": "here"}'), Call("toolu_2", "look", "{}"))


def test_a_message_has_thoughts_text_and_calls_in_this_order() -> None:
    made = message(Script("hm", "I look", CALLS, "tool_calls").reply())
    assert made["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "I look"},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"where": "here"}},
        {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
    ]
    assert (made["id"], made["stop_reason"]) == ("msg_1", "tool_use")


def test_tokens_that_were_cached_are_told_apart() -> None:
    made = message(Script(text="x", cut_tokens=3).reply())
    assert made["usage"] == {
        "input_tokens": 36,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 64,
        "output_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 5},
        "input_tokens_cut": 3,
    }


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (Script(text="x"), "end_turn"),
        (Script(text="x", finish_reason="length"), "max_tokens"),
        (Script(text="x", stop_sequence="END"), "stop_sequence"),
        (Script(calls=CALLS, finish_reason="tool_calls"), "tool_use"),
        (Script(calls=CALLS), "tool_use"),
        (Script(calls=CALLS, finish_reason="length"), "max_tokens"),
        (Script(), "end_turn"),
    ],
)
def test_why_an_answer_ended(script: Script, reason: StopReason) -> None:
    made = message(script.reply())
    assert (made["stop_reason"], made["stop_sequence"]) == (reason, script.stop_sequence)
    assert folded(script, (1,), 1) == made


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ('{"a": 1, "b": [2', {"a": 1, "b": [2]}),
        ("[1]", {}),
        ('{"a": NaN}', {}),
        ('{"a": 1e999}', {}),
        ('{"a": ' + "9" * 5000 + "}", {}),
        ('{"a": ' * 300, {}),
        ("nothing of the kind", {}),
    ],
)
def test_arguments_are_read_as_far_as_they_go(written: str, read: dict[str, Any]) -> None:
    assert arguments(written) == read


# --- streams ---------------------------------------------------------------------------------------------------------


def folded(script: Script, lengths: tuple[int, ...], per_batch: int) -> dict[str, Any]:
    """The message that the events of `script` add up to."""
    told = MessageEvents(MODEL)
    return added_up(
        b"".join(told.of(batch) for batch in script.batches(script.deltas(lengths), per_batch)) + b"".join(told.end())
    )


words = st.text(st.characters(codec="utf-8"), max_size=30)
names = st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True)
objects = st.dictionaries(
    words, st.none() | st.booleans() | st.integers() | words | st.lists(words, max_size=3), max_size=3
)
scripts = st.builds(
    Script,
    thoughts=words,
    text=words,
    calls=st.lists(st.builds(Call, names, names, objects.map(json.dumps)), max_size=3).map(tuple),
    finish_reason=st.sampled_from(["stop", "length", "tool_calls"]),
    stop_sequence=st.none() | st.just("END"),
)


@settings(deadline=None)
@given(scripts, st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple), st.integers(1, 5))
def test_a_stream_in_any_pieces_is_the_message_of_the_json_answer(
    script: Script, lengths: tuple[int, ...], per_batch: int
) -> None:
    assert folded(script, lengths, per_batch) == message(script.reply())


def test_a_stream_of_nothing_sends_nothing() -> None:
    assert list(MessageEvents(MODEL).end()) == []


def test_silence_and_failure_are_named_events() -> None:
    assert PING == b'event: ping\ndata: {"type":"ping"}\n\n'
    name, data = failed(FAULTS["OVERLOADED"](), "req_1").decode().strip().split("\n")
    assert (name, json.loads(data.removeprefix("data: "))["error"]["type"]) == ("event: error", "overloaded_error")


# --- errors ----------------------------------------------------------------------------------------------------------

KNOWN_TYPES = {
    "invalid_request_error",
    "authentication_error",
    "billing_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "timeout_error",
    "api_error",
    "overloaded_error",
}
"""Of Anthropic's schema."""


@pytest.mark.parametrize("name", FAULTS)
def test_every_row_has_a_type_that_clients_know(name: str) -> None:
    fault = FAULTS[name]
    body = error_body(ApiError(name, "a sentence", "model", extra={"supported": ["de"]}), "req_1")
    assert (body["type"], body["request_id"]) == ("error", "req_1")
    assert body["error"]["type"] in KNOWN_TYPES
    assert body["error"] == {
        "type": body["error"]["type"],
        "message": "a sentence",
        "code": fault.code,
        "param": "model",
        "details": {"error_code": fault.code},
        "supported": ["de"],
    }


def test_stop_reasons_are_known_to_clients() -> None:
    known = {"end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal"}
    assert set(get_args(StopReason)) <= known


@pytest.mark.parametrize(
    "path", ["/messages", "/v1/messages", "/v1/messages/", "/messages/count_tokens", "/messages/\n"]
)
def test_paths_of_this_wire_have_its_errors(path: str) -> None:
    assert error_shape(path) is ANTHROPIC


@pytest.mark.parametrize("path", ["/", "", "/v1/messagesx", "/v2/messages", "/v1/chat/messages", "/v1/v1/messages"])
def test_other_paths_have_ours(path: str) -> None:
    assert error_shape(path) is OPENAI
