"""The body of POST /chat/completions: every bound at n-1, n and n+1 where it has one; earlier turns of any wire."""

import json
import math
import pickle
from itertools import product
from typing import Any

from contract.body import validated
from contract.chat import tools as chat_tools
from contract.chat.request import ChatRequest
from contract.chat.tools import ToolCall
from contract.limits import JSON_VALUES, MAX_IMAGES, MAX_MESSAGES
from contract.messages.request import MessagesRequest
from contract.messages.translation import chat_request as of_messages
from contract.responses.request import ResponsesRequest
from tests.contract.bodies import TURN, Row, chat_request, check_refused, refused, tool

PIXEL = "data:image/png;base64,iVBORw0KGgo="


def user(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


BOUNDS: list[tuple[str, float, float, float]] = [
    ("temperature", 0, 2, 0.01),
    ("presence_penalty", -2, 2, 0.01),
    ("frequency_penalty", -2, 2, 0.01),
    ("n", 1, 8, 1),
    ("top_k", -1, math.inf, 1),
    ("min_p", 0, 1, 0.01),
    ("seed", -(2**63), 2**63 - 1, 1),
    ("top_p", 0, 1, 1e-9),
    ("repetition_penalty", 1e-9, 2, 1e-9),
]


def test_numbers_have_bounds() -> None:
    for field, low, high, step in BOUNDS:
        highest = 2**64 if high == math.inf else high
        for inside in (low, low + step, highest - step, highest, None):
            assert getattr(chat_request(**{field: inside}), field) == inside, field
        for outside in (low - step, high + step)[: 1 if high == math.inf else 2]:
            assert refused(chat_request, **{field: outside})[0] == field


def test_numbers_are_finite_and_whole_ones_are_not_guessed() -> None:
    finite = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "min_p", "repetition_penalty")
    wrong: dict[str, tuple[Any, ...]] = dict.fromkeys(finite, (math.nan, math.inf, -math.inf))
    wrong |= dict.fromkeys(("n", "max_tokens", "seed", "top_logprobs", "top_k"), (True, "1", 1.5))
    asked = [(field, value) for field, values in wrong.items() for value in values]
    named = [refused(chat_request, logprobs=True, **{field: value})[0] for field, value in asked]
    assert named == [field for field, _ in asked]


def test_either_name_of_the_budget_counts_and_unknown_fields_are_ignored() -> None:
    budgets: list[tuple[dict[str, Any], int | None]] = [({}, None), ({"max_tokens": 3}, 3)]
    budgets += [({"max_completion_tokens": 4}, 4), ({"max_tokens": 3, "max_completion_tokens": 4}, 4)]
    assert [chat_request(**fields).budget for fields, _ in budgets] == [budget for _, budget in budgets]
    for name in ("max_tokens", "max_completion_tokens"):
        assert refused(chat_request, **{name: 0})[0] == name
    body = chat_request(logit_bias={"1": 5}, user="u", metadata={}, chat_template="{{ x }}", priority=1)
    assert not {"logit_bias", "user", "chat_template", "priority"} & set(ChatRequest.model_fields)
    assert body == chat_request()


MANY_TOOLS = [tool(f"f{i}") for i in range(chat_tools.MAX_TOOLS + 1)]
NO_NAMES = ("", "a b", "ä", "a" * (chat_tools.MAX_NAME_CHARS + 1), "a\n")
REFUSED: list[Row] = [
    ({"stop": ["a"] * 17}, "stop", "17 items were sent; send at most 16"),
    ({"stop": [""]}, "stop[0]", "0 characters were sent; send at least 1"),
    ({"stop": ["a" * 257]}, "stop[0]", "257 characters were sent; send at most 256"),
    ({"repetition_penalty": 0}, "repetition_penalty", "0 was sent; send more than 0"),
    ({"n": 10**80}, "n", f"1{'0' * 63}... was sent; send at most 8"),
    ({"seed": 2**63}, "seed", f"{2**63} was sent; send less than {2**63}"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "21 was sent; send at most 20"),
    ({"top_logprobs": 1}, None, "logprobs"),
    *(({"messages": messages}, "messages", "") for messages in ([TURN] * (MAX_MESSAGES + 1), [], "hello")),
    ({"tool_choice": "required"}, None, "empty"),
    ({"tools": [tool()], "tool_choice": {"type": "function"}}, "tool_choice.function", ""),
    ({"tools": MANY_TOOLS}, "tools", ""),
    *(({"tools": [tool(name)]}, "tools[0].function.name", "was sent; send text that matches `^") for name in NO_NAMES),
]


def test_stops_logprobs_messages_and_tools_have_bounds() -> None:
    check_refused(chat_request, REFUSED)
    stops: list[Any] = ["a", None, *(["a"] * count for count in (0, 15, 16))]
    assert [chat_request(stop=stop).stop for stop in stops] == [["a"], *stops[1:]]
    assert chat_request(logprobs=True, top_logprobs=20).top_logprobs == 20
    assert len(chat_request(messages=[TURN] * MAX_MESSAGES).messages) == MAX_MESSAGES
    assert all(chat_request(tools=tools) for tools in (MANY_TOOLS[:-1], [tool("a" * chat_tools.MAX_NAME_CHARS)]))
    named = {"type": "function", "function": {"name": "f"}}
    for choice, is_forced in ((named, True), ("required", True), ("auto", False), ("none", False)):
        assert chat_request(tools=[tool()], tool_choice=choice).is_tool_forced is is_forced


def test_developer_speaks_as_system_and_a_string_is_one_text_part() -> None:
    assert chat_request(messages=[{"role": "developer", "content": "a"}]).messages[0].role == "system"
    assert refused(chat_request, messages=[{"role": "owner", "content": "a"}])[0] == "messages[0].role"
    assert chat_request() == chat_request(messages=user({"type": "text", "text": "hi"}))
    for part in ({"type": "text"}, {"type": "image_url"}, {"type": "input_audio"}, "text", 5):
        assert str(refused(chat_request, messages=user(part))[0]).startswith("messages[0].content[0]")


def test_a_refusal_that_is_said_again_is_what_the_assistant_said_and_has_words() -> None:
    refusal = {"type": "refusal", "refusal": "I cannot."}
    messages: list[dict[str, Any]] = [
        {"content": [refusal]},
        {"content": None, "refusal": "I cannot."},
        {"content": "", "refusal": "I cannot."},
        {"content": [{"type": "text", "text": ""}, refusal], "refusal": None},
    ]
    for message in messages:
        asked = chat_request(messages=[*user({"type": "text", "text": "hi"}), {"role": "assistant"} | message])
        assert "".join(part.words or "" for part in asked.messages[1].parts) == "I cannot."
        assert "".join(asked.texts()) == "hiI cannot."
    wordless = {"role": "assistant", "content": [{"type": "refusal", "text": "no"}]}
    place, reason = refused(chat_request, messages=[wordless])
    assert (place, "`refusal`" in reason) == ("messages[0].content[0]", True)
    assert "content" in refused(chat_request, messages=[{"role": "user", "refusal": "I cannot."}])[1]


NO_IMAGES = (
    *("http://127.0.0.1/a.png", "https://example.org/a.png", "file:///etc/passwd", "data:;base64,http://x", ""),
    *("DATA:image/png;base64,AAAA", " data:image/png;base64,AAAA", "data:image/svg+xml;base64,AAAA"),
    *("data:text/html;base64,AAAA", "data:image/png,AAAA", "data:image/png;base64,***", "data:image/png;base64,AAA"),
)


def test_images_are_data_addresses_and_no_other_is_taken() -> None:
    for spelling in (PIXEL, {"url": PIXEL}, {"url": PIXEL, "detail": "low"}):
        (message,) = chat_request(messages=user({"type": "image_url", "image_url": spelling})).messages
        assert message.images == 1
    for url in NO_IMAGES:
        place, _ = refused(chat_request, messages=user({"type": "image_url", "image_url": {"url": url}}))
        assert place == "messages[0].content[0].image_url.url", url


def test_images_are_counted_over_all_messages() -> None:
    image = {"type": "image_url", "image_url": PIXEL}
    full = user(*[image] * MAX_IMAGES)
    assert chat_request(messages=full)
    assert f"{MAX_IMAGES}" in refused(chat_request, messages=full + user(image))[1]
    assert "user" in refused(chat_request, messages=[{"role": "system", "content": [image]}])[1]


def test_tool_messages_answer_a_call() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    turns = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "ok"}]
    assert chat_request(messages=turns).messages[0].content is None
    assert "tool_call_id" in refused(chat_request, messages=[{"role": "tool", "content": "ok"}])[1]
    assert "content" in refused(chat_request, messages=[{"role": "user", "content": None}])[1]


def test_arguments_of_all_calls_together_hold_as_many_values_as_a_body() -> None:
    for calls, more in ((1, -1), (1, 0), (1, 1), (4, 0), (4, 1)):
        # An object, its key and the array in it are three; the array's first item comes with it.
        items = JSON_VALUES // calls - 3
        texts = ['{"a,[:{": [' + ",".join(["0"] * (items + 1)) + "]}"] * calls
        messages = called(*texts[1:], '{"a":[' + ",".join(["0"] * (items + 1 + more)) + "]}")
        if more <= 0:
            assert chat_request(messages=messages)
        else:
            place, sentence = refused(chat_request, messages=messages)
            assert place == "messages"
            assert f"together have more than {JSON_VALUES} keys and values" in sentence
    # Punctuation in them counts for nothing.
    code = json.dumps({"code": "f({a: [1, 2]}, b)\n" * JSON_VALUES})
    assert chat_request(messages=called(*[code] * 3))


def called(*arguments: str) -> list[dict[str, Any]]:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": text}} for text in arguments]
    return [{"role": "assistant", "tool_calls": calls}]


def test_response_format_of_a_schema_has_one_and_usage_is_included_where_it_is_asked_for() -> None:
    assert chat_request(response_format={"type": "json_object"})
    assert "json_schema" in refused(chat_request, response_format={"type": "json_schema"})[1]
    assert refused(chat_request, response_format={"type": "grammar"})[0] == "response_format.type"
    for options, is_included in (({"include_usage": True}, True), ({}, False), (None, False)):
        assert chat_request(stream=True, stream_options=options).include_usage is is_included


def test_requests_cross_processes() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    body = chat_request(tools=[tool(parameters={"type": "object"})], response_format=form, stop="x")
    assert pickle.loads(pickle.dumps(body)) == body


HALF = '{"text": "half a sen'
WRITTEN: dict[Any, dict[str, Any]] = {
    '{"a": 1}': {"a": 1},
    HALF: {"text": "half a sen"},
    '{"a": [1, {"b": tr': {"a": [1, {}]},
    "": {},
    "null": {},
    "[1]": {"input": "[1]"},
    "5": {"input": "5"},
    "print(1)": {"input": "print(1)"},
    '{"a": 1}}': {"a": 1},
    '{"a": "<|im_end|>': {"a": "<|im_end|>"},
}
"""Arguments as a model wrote them, and what it is shown of them."""


def by_chat(name: str, call_id: str, arguments: Any) -> ChatRequest:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    turns = [
        {"role": "user", "content": "Translate."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": "bad arguments"},
        {"role": "user", "content": "Again?"},
    ]
    return validated(ChatRequest, {"model": "m", "messages": turns})


def by_responses(name: str, call_id: str, arguments: Any) -> ChatRequest:
    items = [
        {"role": "user", "content": "Translate."},
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments},
        {"type": "function_call_output", "call_id": call_id, "output": "bad arguments"},
        {"role": "user", "content": "Again?"},
    ]
    return validated(ResponsesRequest, {"model": "m", "input": items}).chat


def by_messages(name: str, call_id: str, arguments: Any) -> ChatRequest:
    turns = [
        {"role": "user", "content": "Translate."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": name, "input": arguments}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": call_id, "content": "bad arguments"},
                {"type": "text", "text": "Again?"},
            ],
        },
    ]
    return of_messages(validated(MessagesRequest, {"model": "m", "max_tokens": 9, "messages": turns}))


WIRES = (by_chat, by_responses, by_messages)


def call_of(request: ChatRequest) -> ToolCall:
    (call,) = request.messages[1].tool_calls or ()
    assert request.messages[2].tool_call_id == call.id
    return call.as_function


def test_a_badly_written_call_does_not_end_the_conversation() -> None:
    for wire, written in product(WIRES, [*WRITTEN, {"a": 1}, [1], 5]):
        text = written if isinstance(written, str) else json.dumps(written)
        function = call_of(wire("translate", "c1", written)).function
        assert json.loads(function.arguments) == WRITTEN[text], (wire, written)
        assert sum(function.arguments in text for text in wire("translate", "c1", written).texts()) == 1


def test_a_call_may_have_any_name_and_id() -> None:
    names = ("functions.translate", "two words", "", "ä" * 200, "<|im_end|>")
    for wire, name, call_id in product(WIRES, names, ("", "x" * 1000)):
        call = call_of(wire(name, call_id, "{}"))
        assert (call.function.name, call.id) == (name, call_id)
    custom = {"id": "", "type": "custom", "custom": {"name": "a b", "input": HALF}}
    turns = [{"role": "assistant", "tool_calls": [custom]}, {"role": "user", "content": "Again?"}]
    (made,) = validated(ChatRequest, {"model": "m", "messages": turns}).messages[0].tool_calls or ()
    assert json.loads(made.as_function.function.arguments) == {"input": HALF}


TURNS: dict[str, dict[str, Any]] = {
    "nothing said": {"role": "assistant", "content": None},
    "nothing at all": {"role": "assistant"},
    "no parts": {"role": "assistant", "content": []},
    "empty text": {"role": "user", "content": ""},
    "a result without a call": {"role": "tool", "tool_call_id": "c9", "content": "x"},
    "no calls": {"role": "assistant", "content": "x", "tool_calls": []},
    "an empty result": {"role": "tool", "tool_call_id": "c9", "content": []},
    "a long name": {"role": "user", "name": "n" * 1000, "content": "x"},
}


MESSAGES = {
    "no blocks": {"role": "assistant", "content": []},
    "empty text": {"role": "assistant", "content": ""},
    "a result without a call": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c9"}]},
}


RESPONSES = {
    "no parts": {"role": "assistant", "content": []},
    "a result without a call": {"type": "function_call_output", "call_id": "c9", "output": ""},
    "an empty custom call": {"type": "custom_tool_call", "call_id": "", "name": "", "input": ""},
}


def test_earlier_turns_may_be_empty_or_alone() -> None:
    again = {"role": "user", "content": "Again?"}
    for turn in TURNS.values():
        assert validated(ChatRequest, {"model": "m", "messages": [turn, again]}), turn
    for turn in MESSAGES.values():
        body = {"model": "m", "max_tokens": 9, "messages": [turn, again]}
        assert of_messages(validated(MessagesRequest, body)), turn
    for item in RESPONSES.values():
        assert validated(ResponsesRequest, {"model": "m", "input": [item, again]}).chat, item
