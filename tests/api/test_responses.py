"""POST /responses with the official client, and Anthropic's client, over a socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import anthropic
import openai
import pytest
from openai.types.responses import Response

from contract.errors import FAULTS
from tests.api.conftest import Api
from tests.api.engines import refusing, scripted
from tests.scripted import Call, Script, ScriptedChat

ADD: Any = {
    "type": "function",
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
    "strict": False,
}
CALL = Call("call_a", "add", '{"a": 1}')
PIXEL = "data:image/png;base64,iVBORw0KGgo="


@dataclass
class Served:
    """The app at a port. `client` knows nothing but the address and a key."""

    api: Api
    base_url: str
    client: openai.AsyncOpenAI

    def sync(self) -> openai.OpenAI:
        """The same as `client`, for a thread."""
        return openai.OpenAI(api_key=self.api.everything, base_url=self.base_url, max_retries=0)

    def answers(self, text: str = "Hello", **script: Any) -> ScriptedChat:
        """Has the model answer a script from now on."""
        return scripted(self.api, Script(text=text, **script))


@pytest.fixture
async def served(api: Api, address: str) -> AsyncIterator[Served]:
    url = f"{address}/v1"
    async with openai.AsyncOpenAI(api_key=api.everything, base_url=url, max_retries=0) as client:
        yield Served(api, url, client)


def strict(response: Response) -> Response:
    """`response`, with every member as the client's types have it."""
    return Response.model_validate(response.to_dict(), strict=True)


def without_times(response: Response) -> dict[str, Any]:
    """Members that two answers to one question share."""
    text = json.dumps({k: v for k, v in response.to_dict().items() if k not in ("id", "created_at")})
    text = text.replace(response.id.removeprefix("resp_"), "")
    made_by_client = ("parsed", "parsed_arguments")
    return dict(json.loads(text, object_hook=lambda d: {k: v for k, v in d.items() if k not in made_by_client}))


async def test_answer_is_a_response(served: Served) -> None:
    served.answers(thoughts="Hm")
    made = await served.client.responses.create(
        model="obedient",
        instructions="Be brief.",
        input="hi",
        metadata={"a": "b"},
        store=True,
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


async def test_stream_ends_with_the_same_response(served: Served) -> None:
    served.answers("Hello there", thoughts="Hm", calls=(CALL,))
    asked: Any = {"model": "obedient", "input": "hi", "tools": [ADD]}
    whole = await served.client.responses.create(**asked)
    async with served.client.responses.stream(**asked) as stream:
        names = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert names[:2] == ["response.created", "response.in_progress"]
    assert names[-1] == "response.completed"
    assert without_times(final) == without_times(whole)


async def test_images_reach_the_model(served: Served) -> None:
    engine = served.answers("A dot.")
    content: Any = [
        {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
        {"type": "input_text", "text": "What is there?"},
    ]
    response = await served.client.responses.create(model="obedient", input=[{"role": "user", "content": content}])
    assert response.output_text == "A dot."
    (message,) = engine.asked[-1].messages
    assert message.images == 1


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


async def test_failure_inside_a_stream_is_a_failed_response(served: Served) -> None:
    stream = await served.client.responses.create(model="obedient", input="stream 2 0 fail", stream=True)
    events = [event async for event in stream]
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error
    assert (last.response.error.code, last.response.output_text) == ("server_error", "0 1 ")
    assert "secret" not in last.response.error.message


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


async def test_what_is_kept_nowhere_is_not_found(served: Served) -> None:
    with pytest.raises(openai.BadRequestError, match="stores nothing between requests"):
        await served.client.responses.create(model="obedient", input="x", previous_response_id="resp_1")
    with pytest.raises(openai.NotFoundError):
        await served.client.responses.retrieve("resp_1")


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
