"""The embedded models through the official clients: SmolLM2 in vLLM, all-MiniLM-L6-v2."""

import json
import math
from itertools import islice

import openai
import pytest

from tests.cluster.conftest import Server
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

MODEL = "smollm2-135m-instruct"
QUESTION = [{"role": "user", "content": "Name the capital of France."}]
CITY = {
    "type": "json_schema",
    "json_schema": {
        "name": "city",
        "schema": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "known": {"type": "boolean"}},
            "required": ["city", "known"],
            "additionalProperties": False,
        },
    },
}
COUNTING = {
    "type": "json_schema",
    "json_schema": {"name": "counting", "schema": {"type": "array", "items": {"type": "integer"}, "minItems": 4000}},
}
"""No answer of this form ends by itself before it has thousands of tokens, whatever a model would rather say."""
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.mark.smoke
def test_sync_client_chats(server: Server) -> None:
    answer = server.openai().chat.completions.create(model=MODEL, messages=QUESTION, temperature=0, max_tokens=32)
    assert "Paris" in answer.choices[0].message.content
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id.startswith("req_")


@pytest.mark.smoke
def test_sync_client_streams(server: Server) -> None:
    stream = server.openai().chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0, max_tokens=32, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    *chunks, last = stream
    assert "Paris" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert {chunk.id for chunk in chunks} == {last.id}
    assert last.choices == []
    assert last.usage.completion_tokens > 0


async def test_async_client_streams(server: Server) -> None:
    async with server.async_openai() as client:
        stream = await client.chat.completions.create(
            model=MODEL, messages=QUESTION, temperature=0, max_tokens=32, stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert "Paris" in text


@pytest.mark.smoke
def test_answer_follows_a_json_schema(server: Server) -> None:
    answer = server.openai().chat.completions.create(
        model=MODEL, messages=QUESTION, response_format=CITY, temperature=0, max_tokens=64
    )
    value = json.loads(answer.choices[0].message.content)
    assert set(value) == {"city", "known"}


def test_forced_tool_is_called(server: Server) -> None:
    answer = server.openai().chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[WEATHER],
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
        temperature=0,
        max_tokens=64,
    )
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    assert "city" in json.loads(call.function.arguments)


def test_schema_that_does_not_compile_is_400_and_the_engine_lives(server: Server) -> None:
    broken = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing of that kind"}}}
    with pytest.raises(openai.BadRequestError):
        server.openai().chat.completions.create(model=MODEL, messages=QUESTION, response_format=broken)
    test_sync_client_chats(server)


def test_disconnect_frees_the_engine(server: Server) -> None:
    stream = server.openai().chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Count to ten thousand."}],
        response_format=COUNTING,
        stream=True,
        max_tokens=8000,
    )
    next(stream)
    request_id = stream.response.headers["x-request-id"]
    eventually(lambda: _slots_used(server) == 1, 10, "the console does not show the call at work")
    stream.close()
    eventually(lambda: _slots_used(server) == 0, 30, "the engine works on for nobody")
    tokens = eventually(lambda: _usage_of(server, request_id), 30, "the cancelled stream left no usage line")
    assert 0 < tokens < 8000


@pytest.mark.smoke
def test_embeddings_with_the_clients_default_of_base64(server: Server) -> None:
    result = server.openai().embeddings.create(
        model="all-minilm-l6-v2", input=["a cat", "a kitten", "the federal budget"]
    )
    cat, kitten, budget = (item.embedding for item in result.data)
    assert len(cat) == 384
    assert math.isclose(sum(x * x for x in cat), 1, abs_tol=1e-3)
    assert _dot(cat, kitten) > _dot(cat, budget) + 0.2


@pytest.mark.smoke
def test_rerank_puts_the_relevant_document_first(server: Server) -> None:
    body = {"query": "capital of France", "documents": ["Bananas are yellow.", "Paris is the capital of France."]}
    with server.http() as client:
        results = client.post("/rerank", json=body).json()["results"]
    assert results[0]["index"] == 1


def _usage_of(server: Server, request_id: str) -> int | None:
    """Billed tokens of a request; None where it has no line yet."""
    text = server.state("usage", "--org", "demo", "--format", "json")
    return next((line["quantity"] for line in json.loads(text) if line["request_id"] == request_id), None)


def _slots_used(server: Server) -> int:
    """Slots of the engine that calls hold, as the console shows them."""
    with server.http() as client, client.stream("GET", "/console/events") as reply:
        (data,) = islice((line for line in reply.iter_lines() if line.startswith("data: ")), 1)
    return next(e["used"] for e in json.loads(data.removeprefix("data: "))["engines"] if e["name"] == f"chat-{MODEL}")


def _dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
