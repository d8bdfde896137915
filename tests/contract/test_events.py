"""Answers of chat as responses, as messages and as their events: in any pieces, and as the official SDKs type them."""

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion
from openai.types.responses import Response, ResponseStreamEvent

from contract.chat.engine import ChatBatch
from contract.chat.tools import read_arguments
from contract.errors import FAULTS, QUOTA_EXCEEDED, RATE_LIMIT_EXCEEDED, UPSTREAM_ERROR, ApiError
from contract.messages.reply import PING, MessageEvents, StopReason, message
from contract.messages.reply import failed as failed_message
from contract.responses.reply import ResponseEvents, ResponseHead, whole
from contract.wires import ANTHROPIC_PATHS, contents, error_body
from tests.contract.bodies import responses_request
from tests.scripted import MODEL, Call, Delta, Script, cut
from tests.sdk import added_up, chat_chunk, demand

CALL = Call("call_a", "add", '{"a": 1, "b": 2}')
CUSTOM = Call("call_b", "shell", "ls -l", "custom")
LOUD = Script("Hm, well", "Hello there", (CALL, CUSTOM), "tool_calls", has_logprobs=True)


def head(**fields: Any) -> ResponseHead:
    request = responses_request(**{"include": ["message.output_text.logprobs"]} | fields)
    return ResponseHead(request, "req_abc", 1, "m")


def played(stream: Iterable[ChatBatch], of: ResponseHead) -> list[Any]:
    events = ResponseEvents(of)
    return read(b"".join([*map(events.of, stream), *events.end()]))


def read(framed: bytes) -> list[Any]:
    found = []
    for block in framed.decode().removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        content = json.loads(data.removeprefix("data: "))
        assert name == f"event: {content['type']}"
        found.append(content)
    return found


def fold(events: list[Any]) -> list[Any]:
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
@settings(max_examples=60)
def test_any_stream_of_an_answer_ends_with_the_response_given_as_a_whole(drawn: tuple[Script, list[ChatBatch]]) -> None:
    script, stream = drawn
    events = played(stream, head())
    final = events[-1]["response"]
    assert fold(events) == final["output"]
    assert final == whole(head(), script.reply())


def test_events_of_an_item_come_in_order_and_without_a_single_batch_it_is_empty() -> None:
    begun = ["created", "in_progress", "output_item.added", "content_part.added"]
    ended = ["output_text.done", "content_part.done", "output_item.done", "completed"]
    for stream, deltas in ((Script(text="Hello").batches(), 2), ([], 0)):
        types = [event["type"].removeprefix("response.") for event in played(stream, head())]
        assert types == [*begun, *["output_text.delta"] * deltas, *ended], deltas


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
    told = read(b"".join(map(events.of, stream)) + events.failed(UPSTREAM_ERROR()))
    for event in told:
        demand(ResponseStreamEvent, event)
    last = told[-1]
    response = Response.model_validate(last["response"], strict=True)
    assert (last["type"], response.status) == ("response.failed", "failed")
    assert response.error.code == "server_error"
    assert response.output_text == "Hello "
    assert [getattr(item, "status", None) for item in response.output] == ["completed", "incomplete"]
    assert response.usage.output_tokens == 5


def test_failure_before_anything_is_a_failed_response_too_and_money_that_ran_out_is_told_by_its_type() -> None:
    events = read(ResponseEvents(head()).failed(RATE_LIMIT_EXCEEDED("slow down")))
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.failed"]
    assert events[-1]["response"]["error"]["code"] == "rate_limit_exceeded"
    last = read(ResponseEvents(head()).failed(QUOTA_EXCEEDED("no money left")))[-1]
    Response.model_validate(last["response"], strict=True)
    assert last["response"]["error"]["type"] == "insufficient_quota"


LOOKS = (Call("toolu_1", "look", '{"where": "here"}'), Call("toolu_2", "look", "{}"))


def test_a_message_has_thoughts_text_and_calls_in_this_order() -> None:
    made = message(Script("hm", "I look", LOOKS, "tool_calls").reply())
    assert made["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "I look"},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"where": "here"}},
        {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
    ]
    assert (made["id"], made["stop_reason"]) == ("msg_1", "tool_use")


def test_tokens_that_were_cached_are_told_apart() -> None:
    assert message(Script(text="x", cut_tokens=3).reply())["usage"] == {
        "input_tokens": 36,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 64,
        "output_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 5},
        "input_tokens_cut": 3,
    }


ENDS: list[tuple[Script, StopReason]] = [
    (Script(text="x"), "end_turn"),
    (Script(text="x", finish_reason="length"), "max_tokens"),
    (Script(text="x", stop_sequence="END"), "stop_sequence"),
    (Script(calls=LOOKS, finish_reason="tool_calls"), "tool_use"),
    (Script(calls=LOOKS), "tool_use"),
    (Script(calls=LOOKS, finish_reason="length"), "max_tokens"),
    (Script(), "end_turn"),
]


def test_why_an_answer_ended() -> None:
    for script, reason in ENDS:
        made = message(script.reply())
        assert (made["stop_reason"], made["stop_sequence"]) == (reason, script.stop_sequence)
        assert folded(script, (1,), 1) == made


def test_arguments_are_read_as_far_as_they_go() -> None:
    readable: dict[str, Any] = {
        '{"a": 1}': {"a": 1},
        "": {},
        '{"a": 1, "b": [2': {"a": 1, "b": [2]},
        "[1]": {"input": "[1]"},
        " null ": {},
        '{"a": "half a sen': {"a": "half a sen"},
    }
    broken = ('{"a": NaN}', '{"a": 1e999}', '{"a": ' + "9" * 5000 + "}", '{"a": ' * 300, '{"a": "\\ud800"}', "no such")
    expected = readable | {text: {"input": text} for text in broken}
    assert {text: read_arguments(text) for text in expected} == expected


def folded(script: Script, lengths: tuple[int, ...], per_batch: int) -> dict[str, Any]:
    told = MessageEvents(MODEL)
    return added_up(b"".join([*map(told.of, script.batches(script.deltas(lengths), per_batch)), *told.end()]))


words = st.text(st.characters(codec="utf-8"), max_size=30)
names = st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True)
values = st.none() | st.booleans() | st.integers() | words | st.lists(words, max_size=3)
objects = st.dictionaries(words, values, max_size=3)
scripts = st.builds(
    Script,
    thoughts=words,
    text=words,
    calls=st.lists(st.builds(Call, names, names, objects.map(json.dumps)), max_size=3).map(tuple),
    finish_reason=st.sampled_from(["stop", "length", "tool_calls"]),
    stop_sequence=st.none() | st.just("END"),
)


@given(scripts, st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple), st.integers(1, 5))
def test_a_stream_in_any_pieces_is_the_whole_message(script: Script, lengths: tuple[int, ...], per_batch: int) -> None:
    assert folded(script, lengths, per_batch) == message(script.reply())


def test_silence_and_failure_are_named_events_and_a_stream_of_nothing_sends_nothing() -> None:
    assert list(MessageEvents(MODEL).end()) == []
    assert PING == b'event: ping\ndata: {"type":"ping"}\n\n'
    name, data = failed_message(FAULTS["OVERLOADED"](), "req_1").decode().strip().split("\n")
    assert (name, json.loads(data.removeprefix("data: "))["error"]["type"]) == ("event: error", "overloaded_error")


def test_every_row_has_a_type_that_clients_know() -> None:
    known = {
        *("invalid_request_error", "authentication_error", "billing_error", "permission_error", "not_found_error"),
        *("request_too_large", "rate_limit_error", "timeout_error", "api_error", "overloaded_error"),
    }
    for name, fault in FAULTS.items():
        body = error_body(ApiError(name, "a sentence", "model", None, {"supported": ["de"]}), "req_1")
        kind = body["error"].pop("type")
        assert (body["type"], body["request_id"], kind in known) == ("error", "req_1", True), name
        more = {"param": "model", "details": {"error_code": fault.code}, "supported": ["de"]}
        assert body["error"] == {"message": "a sentence", "code": fault.code} | more, name


def test_paths_of_this_wire_have_its_errors_and_other_paths_have_ours() -> None:
    own = ("/messages", "/v1/messages", "/v1/messages/", "/messages/count_tokens", "/messages/\n")
    others = ("/", "", "/v1/messagesx", "/v2/messages", "/v1/chat/messages", "/v1/v1/messages")
    assert [path for path in (*own, *others) if ANTHROPIC_PATHS.fullmatch(path)] == [*own]


SCRIPTS = {
    "nothing": Script(),
    "text": Script(text="Hello there", has_logprobs=True),
    "all": Script("Hm, well", "Hello there", (CALL, Call("call_c", "now", "{}")), "tool_calls"),
    "cut thoughts": Script("Hm", finish_reason="length", cut_tokens=3),
    "cut call": Script(calls=(Call("call_a", "add", '{"a": "half a sen'),), finish_reason="length"),
    "stop sequence": Script(text="Hello", stop_sequence="END"),
}
OPENAI = {**SCRIPTS, "custom": Script(calls=(CUSTOM, CALL)), "loud": LOUD}


def test_sdks_take_each_answer_of_chat_and_of_responses_and_its_events() -> None:
    for script in OPENAI.values():
        demand(ChatCompletion, script.reply().body)
        for batch in script.batches():
            for chunk in contents(batch.events):
                chat_chunk(chunk)
        demand(Response, whole(head(), script.reply()))
        for event in played(script.batches(), head()):
            demand(ResponseStreamEvent, event)


def test_sdks_take_each_message_and_its_events() -> None:
    for script, is_silent in product(SCRIPTS.values(), (False, True)):
        made = demand(Message, message(script.reply(), is_silent))
        events = MessageEvents(MODEL, is_silent)
        sent = b"".join([*map(events.of, script.batches()), *events.end()])
        *_, delta, stop = [demand(RawMessageStreamEvent, event) for event in read(sent)]
        assert (delta.delta.stop_reason, stop.type) == (made.stop_reason, "message_stop")
        if is_silent:
            assert (made.content, made.stop_reason) == ([], "max_tokens")
            assert b"content_block" not in sent
