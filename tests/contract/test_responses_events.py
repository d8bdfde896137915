"""Streams of POST /responses: whatever the pieces that an engine gives, their events make the same answer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response as SdkResponse

from contract.chat.engine import ChatBatch
from contract.errors import QUOTA_EXCEEDED, RATE_LIMIT_EXCEEDED, UPSTREAM_ERROR
from contract.responses.events import ResponseEvents
from contract.responses.reply import ResponseHead, whole
from tests.contract.bodies import responses_request
from tests.scripted import Call, Delta, Script, cut

Event = dict[str, Any]

CALL = Call("call_a", "add", '{"a": 1, "b": 2}')
CUSTOM = Call("call_b", "shell", "ls -l", "custom")
LOUD = Script("Hm, well", "Hello there", (CALL, CUSTOM), "tool_calls", has_logprobs=True)


def head(**fields: Any) -> ResponseHead:
    request = responses_request(**{"include": ["message.output_text.logprobs"]} | fields)
    return ResponseHead(request, "req_abc", 1, "m")


def played(stream: Iterable[ChatBatch], of: ResponseHead) -> list[Event]:
    events = ResponseEvents(of)
    return read(b"".join([*map(events.of, stream), *events.end()]))


def read(framed: bytes) -> list[Event]:
    found = []
    for block in framed.decode().removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        content = json.loads(data.removeprefix("data: "))
        assert name == f"event: {content['type']}"
        found.append(content)
    return found


def fold(events: list[Event]) -> list[Any]:
    """The output that the deltas add up to; each event must fit those before it."""
    texts: dict[int, str] = {}
    items: dict[int, Any] = {}
    for number, event in enumerate(events):
        assert event["sequence_number"] == number
        kind, index = event["type"], event.get("output_index")
        if kind == "response.output_item.added":
            assert index == len(items)
            items[index] = event["item"]
            texts[index] = ""
        elif kind.endswith(".delta"):
            assert event["item_id"] == items[index]["id"]
            texts[index] += event["delta"]
        elif kind == "response.output_item.done":
            assert event["item"]["id"] == items[index]["id"]
            items[index] = event["item"]
            assert _text(event["item"]) == texts[index]
        elif kind.endswith(".done") and "part" not in event:
            assert texts[index] in (event.get("text"), event.get("arguments"), event.get("input"))
    return [items[index] for index in sorted(items)]


def _text(item: Any) -> str:
    return str(item["content"][0]["text"] if "content" in item else item.get("arguments", item.get("input")))


@st.composite
def streams(draw: st.DrawFn) -> tuple[Script, list[ChatBatch]]:
    words = st.text(min_size=1, max_size=12)
    script = Script(
        thoughts=draw(words | st.just("")),
        text=draw(words | st.just("")),
        calls=tuple(Call(f"call_{i}", f"f{i}", json.dumps({"a": draw(words)})) for i in range(draw(st.integers(0, 3)))),
        finish_reason=draw(st.sampled_from(["stop", "length", "tool_calls"])),
        has_logprobs=draw(st.booleans()),
    )
    lengths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    told = list(replace(script, calls=()).deltas(lengths)) + _interleaved(draw, script.calls, lengths)
    return script, list(script.batches(told, draw(st.integers(1, 5))))


def _interleaved(draw: st.DrawFn, calls: tuple[Call, ...], lengths: list[int]) -> list[Delta]:
    """Pieces of calls made side by side; each begins after the one before it has begun."""
    waiting: list[list[Delta]] = []
    for index, call in enumerate(calls):
        waiting.append([call.opening(index), *(call.piece(index, text) for text in cut(call.given, lengths))])
    found, begun = [], 0
    while any(waiting):
        able = [i for i, left in enumerate(waiting) if left and i <= begun]
        index = draw(st.sampled_from(able))
        found.append(waiting[index].pop(0))
        begun = max(begun, index + 1)
    return found


@given(streams())
@settings(max_examples=60, deadline=None)
def test_any_stream_of_an_answer_ends_with_the_response_that_is_given_as_a_whole(
    drawn: tuple[Script, list[ChatBatch]],
) -> None:
    script, stream = drawn
    events = played(stream, head())
    final = events[-1]["response"]
    assert fold(events) == final["output"]
    assert final == whole(head(), script.reply())


def test_events_of_an_item_come_in_order() -> None:
    events = played(Script(text="Hello").batches(), head())
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


def test_text_after_a_call_is_an_item_after_it() -> None:
    deltas = [{"content": "One"}, CALL.opening(0), {"content": "Two"}]
    events = played(Script().batches(deltas), head())
    output = fold(events)
    assert [item["type"] for item in output] == ["message", "function_call", "message"]
    assert output == events[-1]["response"]["output"]


def test_reasoning_ends_before_the_text_begins() -> None:
    events = played(Script("Hm", "Hello").batches(), head())
    names = [(event["type"], event.get("output_index")) for event in events]
    assert names.index(("response.output_item.done", 0)) < names.index(("response.output_item.added", 1))


def test_answer_without_a_word_is_an_empty_message() -> None:
    events = played(Script().batches(), head())
    assert fold(events) == events[-1]["response"]["output"] == whole(head(), Script().reply())["output"]
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == ""


def test_stream_without_a_single_batch_is_an_empty_response() -> None:
    assert [event["type"] for event in played([], head())][0::7] == ["response.created", "response.completed"]


def test_cut_answer_is_incomplete_in_its_last_item_only() -> None:
    *events, final = played(replace(LOUD, finish_reason="length").batches(), head())
    assert fold(events) == final["response"]["output"]
    assert final["type"] == "response.incomplete"
    assert final["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in final["response"]["output"]] == ["completed"] * 3 + ["incomplete"]


def test_logprobs_are_of_the_text_and_only_where_they_are_wanted() -> None:
    events = played(LOUD.batches(), head())
    (part,) = events[-1]["response"]["output"][1]["content"]
    assert "".join(token["token"] for token in part["logprobs"]) == "Hello there"
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert all("".join(token["token"] for token in delta["logprobs"]) == delta["delta"] for delta in deltas)
    events = played(LOUD.batches(), head(include=[]))
    assert events[-1]["response"]["output"][1]["content"][0]["logprobs"] == []


def test_failure_keeps_what_was_made_and_what_it_cost() -> None:
    events = ResponseEvents(head())
    stream = list(LOUD.batches())[:6]
    framed = b"".join(map(events.of, stream)) + events.failed(UPSTREAM_ERROR())
    last = read(framed)[-1]
    response = SdkResponse.model_validate(last["response"], strict=True)
    assert (last["type"], response.status) == ("response.failed", "failed")
    assert response.error
    assert response.error.code == "server_error"
    assert response.output_text == "Hello "
    assert [getattr(item, "status", None) for item in response.output] == ["completed", "incomplete"]
    assert response.usage
    assert response.usage.output_tokens == 5


def test_failure_before_anything_is_a_failed_response_too() -> None:
    events = read(ResponseEvents(head()).failed(RATE_LIMIT_EXCEEDED("slow down")))
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.failed"]
    assert events[-1]["response"]["error"]["code"] == "rate_limit_exceeded"


def test_money_that_ran_out_is_told_by_its_type() -> None:
    last = read(ResponseEvents(head()).failed(QUOTA_EXCEEDED("no money left")))[-1]
    SdkResponse.model_validate(last["response"], strict=True)
    assert last["response"]["error"]["type"] == "insufficient_quota"
