"""Anthropic's wire: answers of chat as messages and as their events, and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.chat.tools import read_arguments
from contract.errors import FAULTS, ApiError
from contract.messages.events import PING, MessageEvents, failed
from contract.messages.reply import StopReason, message
from contract.wires import ANTHROPIC_PATHS, error_body
from tests.messages import added_up
from tests.scripted import MODEL, Call, Script

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


UNREADABLE = (
    '{"a": NaN}',
    '{"a": 1e999}',
    '{"a": ' + "9" * 5000 + "}",
    '{"a": ' * 300,
    '{"a": "\\ud800"}',
    "nothing of the kind",
)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ('{"a": 1, "b": [2', {"a": 1, "b": [2]}),
        ("[1]", {"input": "[1]"}),
        (" null ", {}),
        ('{"a": "half a sen', {"a": "half a sen"}),
        *((text, {"input": text}) for text in UNREADABLE),
    ],
)
def test_arguments_are_read_as_far_as_they_go(written: str, read: dict[str, Any]) -> None:
    assert read_arguments(written) == read


# --- streams ---------------------------------------------------------------------------------------------------------


def folded(script: Script, lengths: tuple[int, ...], per_batch: int) -> dict[str, Any]:
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


@pytest.mark.parametrize(
    "path", ["/messages", "/v1/messages", "/v1/messages/", "/messages/count_tokens", "/messages/\n"]
)
def test_paths_of_this_wire_have_its_errors(path: str) -> None:
    assert ANTHROPIC_PATHS.fullmatch(path)


@pytest.mark.parametrize("path", ["/", "", "/v1/messagesx", "/v2/messages", "/v1/chat/messages", "/v1/v1/messages"])
def test_other_paths_have_ours(path: str) -> None:
    assert not ANTHROPIC_PATHS.fullmatch(path)
