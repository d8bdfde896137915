"""POST /messages, POST /messages/count_tokens and POST /responses over the real app, and by the official clients."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import openai
import pytest
from anthropic import AsyncAnthropic
from openai.types.responses import Response

from contract.errors import FAULTS, INVALID_TYPE, TYPES
from contract.limits import CHAT_BODY_BYTES
from contract.wires import KEEP_ALIVE
from deployments.ingress.routes import messages as route
from deployments.ingress.wire import events
from deployments.ingress.wire.events import event_stream
from tests.api.conftest import MESSAGE, Api
from tests.api.engines import refusing, scripted
from tests.scripted import Call, Script, ScriptedChat

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


async def test_counting_is_free(api: Api) -> None:
    asked = scripted(api, Script())
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    body = {"model": "obedient", "messages": [MESSAGE], "system": "be kind", "tools": tools}
    reply = await api.send("POST", "/v1/messages/count_tokens", json=body)
    assert (reply.status_code, reply.json()) == (200, {"input_tokens": 5})
    assert [message.role for message in asked.asked[0].messages] == ["system", "user"]
    assert await api.usage() == []


TOOL: Any = {
    "name": "look",
    "description": "Looks somewhere.",
    "input_schema": {"type": "object", "properties": {"where": {"type": "string"}}},
}
CALLING = Script("where?", "I look", (Call("toolu_1", "look", '{"where": "here"}'),), "tool_calls")
ASKED: Any = BODY


@pytest.fixture
async def client(api: Api, address: str) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=address, api_key=api.everything, max_retries=0) as client:
        yield client


async def test_a_stream_adds_up_to_the_message(api: Api, client: AsyncAnthropic) -> None:
    scripted(api, CALLING)
    whole = await client.messages.create(**ASKED)
    async with client.messages.stream(**ASKED, tools=[TOOL]) as stream:
        seen = [event.type async for event in stream]
        streamed = await stream.get_final_message()
    assert [block.to_dict() for block in streamed.content] == [block.to_dict() for block in whole.content]
    assert streamed.usage.to_dict() == whole.usage.to_dict()
    assert (streamed.id, streamed.stop_reason) == (whole.id, whole.stop_reason)
    assert {"thinking", "text", "input_json", "message_stop"} <= set(seen)


async def test_models_are_listed(client: AsyncAnthropic) -> None:
    listed = [model async for model in client.models.list()]
    assert {"obedient", "lengths"} <= {model.id for model in listed}
    assert all(model.type == "model" and model.display_name and model.created_at.year > 2000 for model in listed)
    assert (await client.models.retrieve("obedient")).display_name == "obedient"


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


async def test_an_error_of_the_engine_that_counts_has_it_too(api: Api) -> None:
    refusing(api, FAULTS["WARMING_UP"](retry_after_s=9))
    check(await send(api, path="/messages/count_tokens"), 503, "warming_up")


async def test_without_a_key_that_opens_it_is_401(api: Api) -> None:
    keys = {"": "missing_api_key", "sk-ant-1": "invalid_api_key"}
    for headers, code in ({}, "missing_api_key"), *(({"x-api-key": key}, code) for key, code in keys.items()):
        error = check(await api.client.post("/v1/messages", json=BODY, headers=headers), 401, code)
        assert ("`x-api-key: <API_KEY>`" in error["message"]) == (code == "missing_api_key")


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


async def test_what_no_engine_sees_is_refused_in_this_shape(api: Api) -> None:
    for name, (method, path, request, status, code) in REFUSED.items():
        reply = await api.send(method, path, **request)
        assert reply.status_code == status, name
        check(reply, status, code)


async def test_an_error_of_our_own_is_500_and_tells_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, error: Exception, **__: object) -> Any:
        raise error

    secret = RuntimeError("a secret detail of the inside")
    monkeypatch.setattr(route, "chat_request", partial(fail, error=secret))
    reply = await send(api)
    check(reply, 500, "internal_error")
    assert "secret" not in reply.text
    # A full process is a 503 before any route.
    monkeypatch.setattr(api.service.concurrency, "request", partial(fail, error=FAULTS["OVERLOADED"]()))
    assert check(await send(api), 503, "overloaded")["type"] == "overloaded_error"


async def test_silence_is_filled_with_pings(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def impatient(exchange: Any, source: Any, headers: Any, stream_format: Any) -> Any:
        return await event_stream(exchange, source, headers, 0.01, stream_format)

    monkeypatch.setattr(events, "event_stream", impatient)
    reply = await send(api, "stream 2 0.1", stream=True)
    assert "ping" in [name for name, _ in told(reply.text)]
    assert KEEP_ALIVE.decode() not in reply.text


async def test_other_routes_keep_their_shape_and_look_for_no_such_header(api: Api) -> None:
    reply = await api.client.post("/v1/chat/completions", json=BODY, headers={"x-api-key": api.everything})
    assert reply.status_code == 401
    assert set(reply.json()) == {"error"}
    assert "request-id" not in reply.headers


ADD: Any = {
    "type": "function",
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
    "strict": False,
}


@dataclass
class Served:
    """The app at a port. `client` knows nothing but the address and a key."""

    api: Api
    client: openai.AsyncOpenAI

    def answers(self, text: str = "Hello", **script: Any) -> ScriptedChat:
        """Has the model answer a script from now on."""
        return scripted(self.api, Script(text=text, **script))


@pytest.fixture
async def served(api: Api, address: str) -> AsyncIterator[Served]:
    async with openai.AsyncOpenAI(api_key=api.everything, base_url=f"{address}/v1", max_retries=0) as client:
        yield Served(api, client)


def strict(response: Response) -> Response:
    """`response`, with every member as the client's types have it."""
    return Response.model_validate(response.to_dict(), strict=True)


async def test_answer_is_a_response(served: Served) -> None:
    served.answers(thoughts="Hm")
    made = await served.client.responses.create(
        model="obedient", instructions="Be brief.", input="hi", metadata={"a": "b"}, store=True
    )
    response = strict(made)
    assert (response.status, response.output_text) == ("completed", "Hello")
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.usage
    assert response.usage.to_dict() == {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 0},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 120,
    }
    assert (response.instructions, response.metadata) == ("Be brief.", {"a": "b"})
    assert made.to_dict()["store"] is False


async def test_answer_with_everything_repeated_is_strictly_a_response(served: Served) -> None:
    served.answers("{}", has_logprobs=True, finish_reason="length")
    made = await served.client.responses.create(
        model="obedient",
        input="hi",
        tools=[ADD],
        tool_choice={"type": "function", "name": "add"},
        text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}},
        include=["message.output_text.logprobs"],
        top_logprobs=1,
        temperature=0,
        top_p=0.5,
        max_output_tokens=9,
        reasoning={"effort": "low"},
        parallel_tool_calls=False,
        truncation="auto",
        user="u",
    )
    response = strict(made)
    assert response.incomplete_details
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (response.tools[0].to_dict(), response.temperature, response.max_output_tokens) == (ADD, 0, 9)


CRM: Any = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [ADD]}
"""As Codex offers its groups of tools."""


@pytest.mark.parametrize("kind", ["function", "custom"])
async def test_a_call_of_a_namespace_names_it_and_comes_back(served: Served, kind: Any) -> None:
    note = {"type": "custom", "name": "note"}
    group = CRM | {"tools": [ADD, note]}
    name = "add" if kind == "function" else "note"
    engine = served.answers("", calls=(Call("call_a", f"crm__{name}", '{"a": 1}', kind),))
    asked: Any = {"model": "obedient", "input": "hi", "tools": [group, {"type": "web_search"}]}
    whole = strict(await served.client.responses.create(**asked))
    events = [event async for event in await served.client.responses.create(**asked, stream=True)]
    items = [event.item for event in events if event.type.startswith("response.output_item.")]
    assert events[-1].type == "response.completed"
    for item in (*whole.output, *items, *events[-1].response.output):
        assert (item.namespace, item.name, item.call_id) == ("crm", name, "call_a")
    result = {"type": whole.output[0].type + "_output", "call_id": "call_a", "output": "3"}
    turns: Any = [{"role": "user", "content": "hi"}, whole.output[0].to_dict(), result]
    await served.client.responses.create(**asked | {"input": turns})
    (call,) = engine.asked[-1].messages[1].tool_calls or ()
    assert call.as_function.function.name == f"crm__{name}"
    assert [tool.function.name for tool in engine.asked[-1].offered.values()] == ["crm__add", "crm__note"]


async def test_refusal_of_the_engine_names_a_field_of_this_wire(served: Served) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await served.client.responses.create(model="obedient", input="refuse")
    assert caught.value.param == "input"


async def test_input_that_must_not_be_cut_is_refused_before_it_costs(served: Served) -> None:
    served.answers()
    for words, stream in product((999, 1000, 1001), (False, True)):
        asked: Any = {"model": "obedient", "stream": stream, "input": " ".join(["x"] * words)}
        if words < 1000:
            await _all_of(await served.client.responses.create(**asked, truncation="disabled"))
            continue
        bills = len(await served.api.usage())
        with pytest.raises(openai.BadRequestError) as caught:
            await served.client.responses.create(**asked, truncation="disabled")
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")
        assert len(await served.api.usage()) == bills
        await _all_of(await served.client.responses.create(**asked, truncation="auto"))


async def _all_of(made: Any) -> None:
    """A response that is there, or the last of its events."""
    if not isinstance(made, Response):
        assert [event.type async for event in made][-1] == "response.completed"
