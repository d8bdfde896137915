"""POST /completions, /tokenize and /detokenize over the real app. What the engine does is tested in tests/models."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest
from starlette.types import Message

from tests.api.asgi import exchange, http_scope
from tests.api.conftest import Api, app_over, events
from tests.waiting import until


async def write(api: Api, prompt: Any = "say hello", key: str | None = None, **fields: Any) -> httpx.Response:
    return await api.send("POST", "/v1/completions", key, json={"model": "obedient", "prompt": prompt, **fields})


# --- completions ------------------------------------------------------------------------------------------------------


async def test_the_openai_client_works(api: Api, address: str) -> None:
    url = f"{address}/v1"
    await asyncio.to_thread(_with_sync_client, url, api.everything)
    async with openai.AsyncOpenAI(base_url=url, api_key=api.everything, max_retries=0) as client:
        completion = await client.completions.create(model="obedient", prompt=["say one", "say two"], max_tokens=5)
        assert [choice.text for choice in completion.choices] == ["one", "two"]
        stream = await client.completions.create(model="obedient", prompt="stream 3 0", stream=True)
        assert [chunk.choices[0].text async for chunk in stream] == ["0 ", "1 ", "2 "]
        with pytest.raises(openai.BadRequestError, match="best_of"):
            await client.completions.create(model="obedient", prompt="say one", best_of=4)


def _with_sync_client(address: str, key: str) -> None:
    with openai.OpenAI(base_url=address, api_key=key, max_retries=0) as client:
        completion = client.completions.create(model="obedient", prompt="say hello", logprobs=1, echo=True)
        assert (completion.choices[0].text, completion.object) == ("hello", "text_completion")
        assert completion.usage
        assert completion.usage.total_tokens == 10
        stream = client.completions.create(model="obedient", prompt=[1, 2], stream=True)
        assert [chunk.choices[0].text for chunk in stream] == ["0 ", "1 "]


async def test_a_client_that_leaves_frees_the_engine_and_pays_for_what_was_made(api: Api) -> None:
    adapter, has_text = api.engine().adapter, asyncio.Event()
    body = json.dumps({"model": "obedient", "prompt": "stream 1000 0.01", "stream": True}).encode()
    scope = http_scope("POST", "/v1/completions", [(b"authorization", f"Bearer {api.everything}".encode())])

    async def send(message: Message) -> None:
        if message.get("body"):
            has_text.set()

    asking = asyncio.create_task(exchange(app_over(api.service), scope, body, send))
    await has_text.wait()
    assert adapter.under_way == 1
    asking.cancel()  # as Serve does with the request of a client that goes

    async def is_billed() -> bool:
        return adapter.under_way == 0 and len(await api.usage()) == 1

    await until(is_billed)
    (line,) = await api.usage()
    assert 7 < line.quantity < 1000


async def test_stream_ends_with_done(api: Api) -> None:
    reply = await write(api, "stream 2 0", stream=True)
    *chunks, last = events(reply)
    assert [json.loads(chunk)["object"] for chunk in chunks] == ["text_completion"] * 2
    assert last == "[DONE]"


async def test_all_answers_together_are_held_against_the_budget(api: Api) -> None:
    # Of each prompt 528 tokens and the bytes of its text; of each answer 10 tokens, at 2.
    await api.limit(2 * (528 + 7) + 2 * 3 * 10 * 2)
    assert (await write(api, ["say one", "say two"], n=3, max_tokens=11)).status_code == 402
    assert (await write(api, ["say one", "say two"], n=3, max_tokens=10)).status_code == 200


# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_text_becomes_tokens_and_text_again_for_nothing(api: Api) -> None:
    await api.limit(1)
    body = {"model": "obedient", "prompt": "Hé", "return_token_strs": True}
    reply = await api.send("POST", "/v1/tokenize", json=body)
    assert reply.json() == {"count": 2, "max_model_len": 1000, "tokens": [72, 233], "token_strs": ["H", "é"]}
    back = await api.send("POST", "/v1/detokenize", json={"model": "obedient", "tokens": reply.json()["tokens"]})
    assert back.json() == {"prompt": "Hé"}
    assert await api.usage() == []


async def test_messages_become_tokens(api: Api) -> None:
    body = {"model": "obedient", "messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True}
    reply = await api.send("POST", "/v1/tokenize", json=body)
    assert reply.json() == {"count": 2, "max_model_len": 1000, "tokens": [72, 105]}


async def test_too_much_text_never_reaches_an_engine(api: Api) -> None:
    engine = api.engine()
    for body in ({"prompt": "x" * 8001}, {"messages": [{"role": "user", "content": "x" * 8001}]}):
        reply = await api.send("POST", "/v1/tokenize", json=body | {"model": "obedient"})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, next(iter(body)))
    assert engine.callers == []
