"""POST /messages and POST /messages/count_tokens over the real app: bills, streams, and errors in Anthropic's shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contract.access import Scope
from contract.errors import FAULTS, INVALID_TYPE, TYPES
from contract.limits import CHAT_BODY_BYTES
from contract.wires import KEEP_ALIVE
from deployments.ingress.routes import messages as route
from deployments.ingress.wire import events
from deployments.ingress.wire.events import event_stream
from tests.api.conftest import MESSAGE, Api
from tests.api.engines import refusing, scripted
from tests.scripted import Script

BODY: dict[str, Any] = {"model": "obedient", "max_tokens": 50, "messages": [MESSAGE]}


async def send(api: Api, text: str = "say hello", path: str = "/v1/messages", **fields: Any) -> Any:
    """One message, with the key where Anthropic's clients put it."""
    body = BODY | {"messages": [{"role": "user", "content": text}]} | fields
    headers = {"x-api-key": api.everything, "anthropic-version": "2023-06-01"}
    return await api.client.post(path, json=body, headers=headers)


def told(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Names and contents of the events."""
    framed = [event.split("\n") for event in text.split("\n\n")[:-1]]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in framed]


async def test_answer_is_a_message(api: Api) -> None:
    reply = await send(api, "say hello")
    assert reply.status_code == 200
    assert reply.json() == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "obedient",
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 7,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 3,
            "output_tokens_details": {"thinking_tokens": 0},
        },
    }
    assert reply.headers["request-id"] == reply.headers["x-request-id"]


async def test_a_bearer_key_and_no_version_will_do(api: Api) -> None:
    assert (await api.send("POST", "/messages", json=BODY)).status_code == 200


async def test_a_stream_tells_a_message(api: Api) -> None:
    scripted(api, Script("hm", "hello"))
    reply = await send(api, stream=True)
    names = [name for name, _ in told(reply.text)]
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert (names[0], names[-2:]) == ("message_start", ["message_delta", "message_stop"])
    assert [c["content_block"]["type"] for n, c in told(reply.text) if n == "content_block_start"] == [
        "thinking",
        "text",
    ]
    assert "[DONE]" not in reply.text


async def test_counting_is_free(api: Api) -> None:
    asked = scripted(api, Script())
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    body = {"model": "obedient", "messages": [MESSAGE], "system": "be kind", "tools": tools}
    reply = await api.send("POST", "/v1/messages/count_tokens", json=body)
    assert (reply.status_code, reply.json()) == (200, {"input_tokens": 5})
    assert [message.role for message in asked.asked[0].messages] == ["system", "user"]
    assert await api.usage() == []


# --- errors ----------------------------------------------------------------------------------------------------------


def check(reply: Any, status: int, code: str) -> dict[str, Any]:
    """The error of a reply, which has this wire's shape."""
    body = reply.json()
    assert set(body) == {"type", "error", "request_id"}
    error: dict[str, Any] = body["error"]
    assert (reply.status_code, error["code"], body["type"]) == (status, code, "error")
    assert error["type"] == (TYPES[status][1] if status in TYPES else INVALID_TYPE)
    assert error["message"]
    assert body["request_id"] == reply.headers["request-id"] == reply.headers["x-request-id"]
    return error


async def test_every_row_of_the_table_has_this_shape(api: Api) -> None:
    for fault in FAULTS.values():
        refusing(api, fault("a sentence", retry_after_s=fault.retry_after_s or 9))
        reply = await send(api)
        check(reply, fault.status, fault.code)
        should_retry = None if fault.should_retry is None else str(fault.should_retry).lower()
        assert reply.headers["retry-after"] == str(fault.retry_after_s or 9), fault.code
        assert reply.headers.get("x-should-retry") == should_retry, fault.code


async def test_an_error_of_the_engine_that_counts_has_it_too(api: Api) -> None:
    refusing(api, FAULTS["WARMING_UP"](retry_after_s=9))
    check(await send(api, path="/messages/count_tokens"), 503, "warming_up")


@pytest.mark.parametrize(
    ("headers", "code", "says"),
    [
        ({}, "missing_api_key", "`x-api-key: <API_KEY>`"),
        ({"x-api-key": ""}, "missing_api_key", "`x-api-key: <API_KEY>`"),
        ({"x-api-key": "sk-ant-1"}, "invalid_api_key", ""),
    ],
)
async def test_without_a_key_that_opens_it_is_401(api: Api, headers: dict[str, str], code: str, says: str) -> None:
    error = check(await api.client.post("/v1/messages", json=BODY, headers=headers), 401, code)
    assert says in error["message"]


async def test_two_keys_are_401_with_a_sentence(api: Api) -> None:
    other = await api.key(Scope.CHAT)
    headers = {"x-api-key": other, "authorization": f"Bearer {api.everything}"}
    reply = await api.client.post("/v1/messages", json=BODY, headers=headers)
    error = check(reply, 401, "invalid_api_key")
    assert "different keys" in error["message"]
    assert other not in reply.text


REFUSED: dict[str, tuple[str, str, dict[str, Any], int, str]] = {
    "no such model": ("POST", "/messages", {"json": BODY | {"model": "claude-sonnet-4-5"}}, 404, "model_not_found"),
    "batches": ("POST", "/v1/messages/batches", {}, 404, "not_found"),
    "a longer path": ("POST", "/messages/x/y", {}, 404, "not_found"),
    "a slash at the end": ("POST", "/v1/messages/", {}, 404, "not_found"),
    "another method": ("GET", "/v1/messages", {}, 405, "method_not_allowed"),
    "too long": ("POST", "/v1/messages", {"content": b" " * (CHAT_BODY_BYTES + 1)}, 413, "request_too_large"),
    "a form": ("POST", "/v1/messages", {"data": {"a": "b"}, "files": {"file": b"x"}}, 415, "unsupported_media_type"),
    "no JSON": ("POST", "/v1/messages", {"content": b"{"}, 400, "invalid_json"),
    "no object": ("POST", "/v1/messages", {"content": b"[]"}, 400, "invalid_request_error"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_no_engine_sees_is_refused_in_this_shape(api: Api, name: str) -> None:
    method, path, request, status, code = REFUSED[name]
    check(await api.send(method, path, **request), status, code)


async def test_a_full_process_is_503_before_any_route(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(is_vital: bool) -> Any:
        raise FAULTS["OVERLOADED"]()

    monkeypatch.setattr(api.service.concurrency, "request", full)
    assert check(await send(api), 503, "overloaded")["type"] == "overloaded_error"


async def test_an_error_of_our_own_is_500_and_tells_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(body: Any) -> Any:
        raise RuntimeError("a secret detail of the inside")

    monkeypatch.setattr(route, "chat_request", broken)
    reply = await send(api)
    check(reply, 500, "internal_error")
    assert "secret" not in reply.text


async def test_a_failure_in_a_stream_is_an_event_of_this_wire(api: Api) -> None:
    reply = await send(api, "stream 2 0 fail", stream=True)
    name, content = told(reply.text)[-1]
    assert (reply.status_code, name) == (200, "error")
    assert content["error"]["code"] == "upstream_error"
    assert content["request_id"] == reply.headers["request-id"]
    assert "message_stop" not in reply.text


async def test_silence_is_filled_with_pings(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def impatient(trace: Any, source: Any, headers: Any, stream_format: Any) -> Any:
        return await event_stream(trace, source, headers, 0.01, stream_format)

    monkeypatch.setattr(events, "event_stream", impatient)
    reply = await send(api, "stream 2 0.1", stream=True)
    assert "ping" in [name for name, _ in told(reply.text)]
    assert KEEP_ALIVE.decode() not in reply.text


async def test_other_routes_keep_their_shape_and_look_for_no_such_header(api: Api) -> None:
    reply = await api.client.post("/v1/chat/completions", json=BODY, headers={"x-api-key": api.everything})
    assert reply.status_code == 401
    assert set(reply.json()) == {"error"}
    assert "request-id" not in reply.headers
