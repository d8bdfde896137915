"""Anthropic's official client over a real socket: sync, async, streams, tools, thoughts, errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest

from contract.errors import FAULTS
from tests.api.conftest import Api
from tests.api.engines import refusing, scripted
from tests.scripted import Call, Script

HELLO: list[Any] = [{"role": "user", "content": "say hello"}]
TOOL: Any = {
    "name": "look",
    "description": "Looks somewhere.",
    "input_schema": {"type": "object", "properties": {"where": {"type": "string"}}},
}
CALLING = Script("where?", "I look", (Call("toolu_1", "look", '{"where": "here"}'),), "tool_calls")


class Client:
    """Both clients of the SDK, at one server."""

    def __init__(self, api: Api, address: str) -> None:
        self.api = api
        given: Any = {"base_url": address, "api_key": api.everything, "max_retries": 0}
        self.plain = anthropic.Anthropic(**given)
        self.anew = anthropic.AsyncAnthropic(**given)

    async def said(self, **fields: Any) -> Any:
        """One message of the async client."""
        return await self.anew.messages.create(**{"model": "obedient", "max_tokens": 50, "messages": HELLO} | fields)


@pytest.fixture
async def client(api: Api, address: str) -> AsyncIterator[Client]:
    made = Client(api, address)
    async with made.anew:
        yield made
    made.plain.close()


async def test_the_async_client_gets_thoughts_and_a_stop_sequence(client: Client) -> None:
    engine = scripted(client.api, Script("hm", "hello", stop_sequence="END"))
    message = await client.said(thinking={"type": "adaptive"}, stop_sequences=["END"], extra_body={"top_k": 5})
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "END")
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (36, 64)
    asked = engine.asked[0]
    assert (asked.reasoning_effort, asked.stop, asked.top_k) == ("medium", ["END"], 5)


async def test_a_stream_adds_up_to_the_message(client: Client) -> None:
    scripted(client.api, CALLING)
    whole = await client.said()
    async with client.anew.messages.stream(model="obedient", max_tokens=50, messages=HELLO, tools=[TOOL]) as stream:
        seen = [event.type async for event in stream]
        streamed = await stream.get_final_message()
    assert [block.to_dict() for block in streamed.content] == [block.to_dict() for block in whole.content]
    assert streamed.usage.to_dict() == whole.usage.to_dict()
    assert (streamed.id, streamed.stop_reason) == (whole.id, whole.stop_reason)
    assert {"thinking", "text", "input_json", "message_stop"} <= set(seen)


async def test_models_are_listed(client: Client) -> None:
    listed = [model async for model in client.anew.models.list()]
    assert {"obedient", "lengths"} <= {model.id for model in listed}
    assert all(model.type == "model" and model.display_name and model.created_at.year > 2000 for model in listed)
    assert (await client.anew.models.retrieve("obedient")).display_name == "obedient"


@pytest.mark.parametrize(
    ("fields", "kind", "code"),
    [
        ({"extra_body": {"temperature": 2}}, "BadRequestError", "invalid_request_error"),
        ({"model": "nobody"}, "NotFoundError", "model_not_found"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "BadRequestError", "invalid_request_error"),
    ],
)
async def test_a_refusal_is_the_error_of_its_kind(client: Client, fields: dict[str, Any], kind: str, code: str) -> None:
    with pytest.raises(getattr(anthropic, kind)) as caught:
        await client.said(**fields)
    error = caught.value
    assert error.body["error"]["code"] == error.error_code == code
    assert (error.type, error.request_id) == (error.body["error"]["type"], error.body["request_id"])


async def test_a_failure_in_a_stream_is_raised(client: Client) -> None:
    turns: list[Any] = [{"role": "user", "content": "stream 2 0 fail"}]
    with pytest.raises(anthropic.APIStatusError) as caught:
        async for _ in await client.said(messages=turns, stream=True):
            pass
    assert caught.value.body["error"]["code"] == "upstream_error"


async def test_a_busy_server_is_asked_again(client: Client) -> None:
    refusing(client.api, FAULTS["OVERLOADED"](retry_after_s=0))
    patient = client.anew.copy(max_retries=1)
    with pytest.raises(anthropic.InternalServerError) as caught:
        await patient.messages.create(model="obedient", max_tokens=1, messages=HELLO)
    assert caught.value.type == "overloaded_error"
    assert caught.value.request.headers["x-stainless-retry-count"] == "1"
