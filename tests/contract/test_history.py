"""What was said earlier in a conversation is material: it may be badly formed, and the next question is answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contract.body import validated
from contract.chat.request import ChatRequest
from contract.chat.tools import ToolCall
from contract.messages.request import MessagesRequest
from contract.messages.translation import chat_request as of_messages
from contract.responses.request import ResponsesRequest

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


def chat(name: str, call_id: str, arguments: Any) -> ChatRequest:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    turns = [
        {"role": "user", "content": "Translate."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": "bad arguments"},
        {"role": "user", "content": "Again?"},
    ]
    return validated(ChatRequest, {"model": "m", "messages": turns})


def responses(name: str, call_id: str, arguments: Any) -> ChatRequest:
    items = [
        {"role": "user", "content": "Translate."},
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments},
        {"type": "function_call_output", "call_id": call_id, "output": "bad arguments"},
        {"role": "user", "content": "Again?"},
    ]
    return validated(ResponsesRequest, {"model": "m", "input": items}).chat


def messages(name: str, call_id: str, arguments: Any) -> ChatRequest:
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


WIRES = (chat, responses, messages)


def read(request: ChatRequest) -> ToolCall:
    (call,) = request.messages[1].tool_calls or ()
    assert request.messages[2].tool_call_id == call.id
    return call.as_function


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("written", [*WRITTEN, {"a": 1}, [1], 5])
def test_a_badly_written_call_does_not_end_the_conversation(wire: Any, written: Any) -> None:
    text = written if isinstance(written, str) else json.dumps(written)
    function = read(wire("translate", "c1", written)).function
    assert json.loads(function.arguments) == WRITTEN[text]
    assert sum(function.arguments in text for text in wire("translate", "c1", written).texts()) == 1


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", ["functions.translate", "two words", "", "ä" * 200, "<|im_end|>"])
@pytest.mark.parametrize("call_id", ["", "x" * 1000])
def test_a_call_may_have_any_name_and_id(wire: Any, name: str, call_id: str) -> None:
    call = read(wire(name, call_id, "{}"))
    assert (call.function.name, call.id) == (name, call_id)


CHAT = {
    "nothing said": [{"role": "assistant", "content": None}],
    "nothing at all": [{"role": "assistant"}],
    "no parts": [{"role": "assistant", "content": []}],
    "empty text": [{"role": "user", "content": ""}],
    "a result without a call": [{"role": "tool", "tool_call_id": "c9", "content": "x"}],
    "no calls": [{"role": "assistant", "content": "x", "tool_calls": []}],
    "an empty result": [{"role": "tool", "tool_call_id": "c9", "content": []}],
    "a long name": [{"role": "user", "name": "n" * 1000, "content": "x"}],
}


@pytest.mark.parametrize("turns", CHAT.values(), ids=CHAT)
def test_earlier_turns_of_a_chat_may_be_empty_or_alone(turns: list[Any]) -> None:
    assert validated(ChatRequest, {"model": "m", "messages": [*turns, {"role": "user", "content": "Again?"}]})


MESSAGES = {
    "no blocks": {"role": "assistant", "content": []},
    "empty text": {"role": "assistant", "content": ""},
    "a result without a call": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c9"}]},
}


@pytest.mark.parametrize("turn", MESSAGES.values(), ids=MESSAGES)
def test_earlier_turns_of_messages_may_be_empty_or_alone(turn: Any) -> None:
    turns = [turn, {"role": "user", "content": "Again?"}]
    assert of_messages(validated(MessagesRequest, {"model": "m", "max_tokens": 9, "messages": turns}))


RESPONSES = {
    "no parts": {"role": "assistant", "content": []},
    "a result without a call": {"type": "function_call_output", "call_id": "c9", "output": ""},
    "an empty custom call": {"type": "custom_tool_call", "call_id": "", "name": "", "input": ""},
}


@pytest.mark.parametrize("item", RESPONSES.values(), ids=RESPONSES)
def test_earlier_items_of_a_response_may_be_empty_or_alone(item: Any) -> None:
    assert validated(ResponsesRequest, {"model": "m", "input": [item, {"role": "user", "content": "Again?"}]}).chat


def test_custom_calls_may_have_any_name() -> None:
    call = {"id": "", "type": "custom", "custom": {"name": "a b", "input": HALF}}
    turns = [{"role": "assistant", "tool_calls": [call]}, {"role": "user", "content": "Again?"}]
    (made,) = validated(ChatRequest, {"model": "m", "messages": turns}).messages[0].tool_calls or ()
    assert json.loads(made.as_function.function.arguments) == {"input": HALF}
