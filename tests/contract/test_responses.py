"""Bodies of POST /responses: which chat they become, and what is refused with which words."""

import json
from typing import Any

import pytest

from contract.chat.request import ChatRequest
from contract.chat.tools import MAX_TOOLS
from contract.errors import INVALID_REQUEST, ApiError
from contract.limits import MAX_IMAGES, MAX_MESSAGES, MAX_PARTS, MAX_TOOL_CALLS, MAX_TOP_LOGPROBS
from contract.responses.output import spelling
from contract.responses.request import (
    MAX_ECHO_BYTES,
    MAX_INCLUDES,
    MAX_LABEL_CHARS,
    MAX_METADATA,
    MAX_METADATA_CHARS,
    MAX_METADATA_KEY_CHARS,
)
from contract.responses.tools import translate_errors
from models.chat.request import engine_fields
from tests.contract.bodies import Row, check_refused, refused, responses_request, turns_of

PIXEL = "data:image/png;base64,iVBORw0KGgo="
TOOL = {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}, "strict": True}
CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "3"}
IMAGE = {"type": "input_image", "image_url": PIXEL}


def chat(**fields: Any) -> ChatRequest:
    return responses_request(**fields).chat


def said(role: str, *texts: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text} for text in texts]}


def test_text_is_a_message_of_the_user_after_the_instructions_and_messages_keep_their_order_roles_and_parts() -> None:
    assert turns_of(chat(instructions="Be brief.")) == [said("system", "Be brief."), said("user", "Hello")]
    answer = {"type": "output_text", "text": "Two", "annotations": []}
    items = [
        {"role": "user", "content": "One"},
        {"type": "message", "role": "assistant", "content": [answer]},
        {"role": "user", "content": [{"type": "input_text", "text": "Three"}, {"type": "input_text", "text": "Four"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ]
    turns = [said("user", "One"), said("assistant", "Two"), said("user", "Three", "Four"), said("assistant", "No.")]
    assert turns_of(chat(input=items)) == turns


def test_developers_join_the_instructions_at_the_top_and_stand_alone_below() -> None:
    items = [{"role": role, "content": text} for role, text in (("developer", "B"), ("user", "C"), ("system", "D"))]
    top = {"role": "system", "content": "A\nB"}
    assert engine_fields(chat(instructions="A", input=items))["messages"] == [top, *items[1:]]


def test_calls_join_the_turn_that_made_them_and_reasoning_is_passed_over() -> None:
    items = [
        {"role": "user", "content": "Add."},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "I will."}]},
        CALL,
        {"type": "reasoning", "id": "rs_2", "summary": []},
        CALL | {"call_id": "c2"},
        OUTPUT,
        OUTPUT | {"call_id": "c2", "output": [{"type": "input_text", "text": "4"}]},
    ]
    user, assistant, first, second = turns_of(chat(input=items))
    assert user == said("user", "Add.")
    assert assistant["content"] == said("assistant", "I will.")["content"]
    assert [call["id"] for call in assistant["tool_calls"]] == ["c1", "c2"]
    assert assistant["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert (first, second) == (said("tool", "3") | {"tool_call_id": "c1"}, said("tool", "4") | {"tool_call_id": "c2"})


def test_images_are_parts_of_a_message() -> None:
    (message,) = chat(input=[{"role": "user", "content": [IMAGE | {"detail": "original"}]}]).messages
    image = message.content[0].image_url
    assert (image.url, image.detail) == (PIXEL, "high")


def test_settings_reach_the_chat_under_its_names() -> None:
    request = chat(
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.9,
        reasoning={"effort": "low", "summary": "auto"},
        parallel_tool_calls=False,
        include=["message.output_text.logprobs", "reasoning.encrypted_content"],
        top_logprobs=3,
        stream=True,
        stream_options={"include_obfuscation": False},
    )
    assert (request.budget, request.temperature, request.top_p, request.reasoning_effort) == (9, 0.5, 0.9, "low")
    assert (request.parallel_tool_calls, request.logprobs, request.top_logprobs) == (False, True, 3)
    assert (request.stream, request.include_usage) == (True, True)


def test_functions_become_nested_and_a_choice_names_one_or_is_a_word() -> None:
    request = chat(tools=[TOOL], tool_choice={"type": "function", "name": "add"})
    assert request.tools[0].function.model_dump() == {k: v for k, v in TOOL.items() if k != "type"}
    assert request.is_tool_forced
    words = ["auto", "none", "required"]
    assert [chat(tools=[TOOL], tool_choice=word).tool_choice for word in words] == words


def test_answer_formats_are_those_of_chat() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    request = chat(text={"format": form, "verbosity": "low"})
    assert request.response_format.json_schema.schema_ == {"type": "object"}
    request = chat(text={"format": {"type": "json_object"}})
    assert request.response_format.type == "json_object"


def test_what_clients_may_say_without_effect_is_taken() -> None:
    fields = {"store": True, "service_tier": "flex", "background": False, "previous_response_id": None, "user": "u"}
    responses_request(max_tool_calls=3, max_output_tokens=1, **fields)


def user(*parts: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": list(parts)}]}


MANY = [{"role": "user", "content": "x"}]
FAR = IMAGE | {"image_url": "https://example.com/a.png"}
FAR_OUTPUT = OUTPUT | {"output": [FAR]}
GRAMMAR = {"type": "custom", "name": "shell", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}}
SHORTENED = {"type": "compaction", "encrypted_content": "x"}
NAMELESS = {"type": "json_schema", "schema": {}}
AWAY = NAMELESS | {"name": "n", "schema": {"$ref": "http://x"}}
DEAR = TOOL | {"parameters": {"$ref": "x"}}
NONE_ALLOWED = {"type": "allowed_tools", "mode": "auto", "tools": []}
NOT_KEPT = "this server stores nothing between requests"
REFUSED: dict[str, Row] = {
    "a response before": ({"previous_response_id": "resp_1"}, "previous_response_id", NOT_KEPT),
    "a conversation": ({"conversation": {"id": "conv_1"}}, "conversation", NOT_KEPT),
    "a prompt template": ({"prompt": {"id": "pmpt_1"}}, "prompt", NOT_KEPT),
    "work in the background": ({"background": True}, "background", "generates none in the background"),
    "moderation": ({"moderation": {"model": "m"}}, "moderation", "no moderation model"),
    "no input": ({"input": None}, "input", "an array"),
    "empty input": ({"input": []}, "input", "at least 1"),
    "a number as input": ({"input": 7}, "input", "number was sent; send a string or an array"),
    "an item that is text": ({"input": ["x"]}, "input[0]", "an item is a `message`"),
    "an item of no type": ({"input": [{"id": "msg_1"}]}, "input[0]", "`item_reference`"),
    "a reference": ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]", "`item_reference`"),
    "what another server shortened": ({"input": [SHORTENED]}, "input[0]", "`compaction`"),
    "nothing but what a server's tool did": ({"input": [{"type": "web_search_call"}]}, "input", "at least 1"),
    "a type that is no text": ({"input": [{"type": ["message"]}]}, "input[0]", "an item is"),
    "an unknown role": ({"input": [{"role": "king", "content": "x"}]}, "input[0].role", "`user`"),
    "a message of nothing": ({"input": [{"role": "user"}]}, "input[0].content", "missing"),
    "a file": (user({"type": "input_file", "file_id": "f"}), "input[0].content[0].type", "`input_image`"),
    "an image by file": (user({"type": "input_image", "file_id": "f"}), "input[0].content[0]", "stores no files"),
    "an image by address": (user(FAR), "input[0].content[0].image_url", "the server fetches none"),
    "an image of the assistant": ({"input": [{"role": "assistant", "content": [IMAGE]}]}, "input[0]", "role `user`"),
    "a tool's image by address": ({"input": [FAR_OUTPUT]}, "input[0].output[0].image_url", "the server fetches none"),
    "a text without text": (user({"type": "input_text"}), "input[0].content[0]", "needs the field `text`"),
    "no id of a call": ({"input": [{k: v for k, v in CALL.items() if k != "call_id"}]}, "input[0].call_id", "missing"),
    "an output without id": ({"input": [OUTPUT | {"call_id": None}]}, "input[0].call_id", "string"),
    "a tool of an unknown type": ({"tools": [TOOL, {"type": "functoin"}]}, "tools[1]", "a tool is a `function`"),
    "a tool without name": ({"tools": [{"type": "function"}]}, "tools[0].name", "missing"),
    "two tools of one name": ({"tools": [TOOL, TOOL]}, None, "same name"),
    "a choice that is not there": ({"tool_choice": {"type": "function", "name": "x"}}, None, "not in `tools`"),
    "a grammar": ({"tools": [GRAMMAR]}, "tools[0].format.type", "free text"),
    "a choice of the wrong kind": ({"tools": [TOOL], "tool_choice": {"type": "custom", "name": "add"}}, None, "`add`"),
    "none allowed": ({"tools": [TOOL], "tool_choice": NONE_ALLOWED}, "tool_choice.tools", "at least 1"),
    "no token of an answer": ({"max_output_tokens": 0}, "max_output_tokens", "send at least 1"),
    "a built-in choice": ({"tool_choice": {"type": "file_search"}}, "tool_choice", "a choice is"),
    "a choice that is no word": ({"tool_choice": "any"}, "tool_choice", "a choice is"),
    "a call of nothing": ({"tool_choice": "required"}, None, "`tools` is empty"),
    "an unknown format": ({"text": {"format": {"type": "xml"}}}, "text.format.type", "`json_schema`"),
    "a schema without name": ({"text": {"format": NAMELESS}}, "text.format", "`name` and `schema`"),
    "a schema that leads away": ({"text": {"format": AWAY}}, "text.format", "the JSON schema in `text.format`"),
    "a dear schema of a tool": ({"tools": [DEAR]}, "tools[0].parameters", "the JSON schema in `tools[0].parameters`"),
    "an unknown effort": ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "`high`"),
    "an unknown truncation": ({"truncation": "middle"}, "truncation", "`auto`"),
    "much metadata": ({"metadata": {str(n): "" for n in range(17)}}, "metadata", "17 items were sent; send at most 16"),
    "metadata of numbers": ({"metadata": {"a": 1}}, "metadata.a", "string"),
}


def test_what_cannot_be_served_is_refused() -> None:
    check_refused(responses_request, REFUSED)


BOUNDS: dict[str, tuple[int, Any]] = {
    "items": (MAX_MESSAGES, lambda n: {"input": MANY * n}),
    "parts": (MAX_PARTS, lambda n: user(*[{"type": "input_text", "text": "x"}] * n)),
    "images": (MAX_IMAGES, lambda n: user(*[IMAGE] * n)),
    "images of tools": (MAX_IMAGES, lambda n: {"input": [OUTPUT | {"output": [IMAGE] * n}]}),
    "calls of a turn": (MAX_TOOL_CALLS, lambda n: {"input": [CALL | {"call_id": f"c{i}"} for i in range(n)]}),
    "tools": (MAX_TOOLS, lambda n: {"tools": [{"type": "function", "name": f"f{i}"} for i in range(n)]}),
    "top_logprobs": (MAX_TOP_LOGPROBS, lambda n: {"top_logprobs": n}),
    "includes": (MAX_INCLUDES, lambda n: {"include": ["x"] * n}),
    "characters of a user": (MAX_LABEL_CHARS, lambda n: {"user": "u" * n}),
    "metadata": (MAX_METADATA, lambda n: {"metadata": {str(i): "" for i in range(n)}}),
    "characters of a key": (MAX_METADATA_KEY_CHARS, lambda n: {"metadata": {"k" * n: ""}}),
    "characters of a value": (MAX_METADATA_CHARS, lambda n: {"metadata": {"k": "v" * n}}),
}


def test_bound_is_taken_and_one_more_is_not() -> None:
    for name, (most, fields) in BOUNDS.items():
        assert responses_request(**fields(most - 1)), name
        assert responses_request(**fields(most)), name
        refused(responses_request, **fields(most + 1))


def test_what_a_reply_repeats_is_bounded() -> None:
    rest = len(json.dumps(responses_request(instructions="").echo()).encode())
    responses_request(instructions="x" * (MAX_ECHO_BYTES - rest))
    assert "longer texts into `input`" in refused(responses_request, instructions="x" * (MAX_ECHO_BYTES - rest + 1))[1]
    responses_request(input="x" * 2 * MAX_ECHO_BYTES)


def test_errors_of_the_engine_are_told_in_the_names_of_this_wire() -> None:
    bad = INVALID_REQUEST("the JSON schema in `response_format` is bad; so are `messages`", param="messages[2].content")
    with pytest.raises(ApiError) as caught, translate_errors([]):
        raise bad
    assert caught.value.message == "the JSON schema in `text.format` is bad; so are `input`"
    assert caught.value.param == "input[2].content"


def test_an_answer_has_the_log_probabilities_of_its_own_tokens_and_of_no_neighbour() -> None:
    tokens = [(token, at) for at, token in enumerate(["<t>", "no", "</t>", "a ", "word", "."])]
    assert (spelling("a word", tokens), spelling("e", tokens)) == ([3, 4], [0, 1, 2, 3, 4, 5])
