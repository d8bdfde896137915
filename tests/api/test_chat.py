"""POST /chat/completions, /completions, /tokenize and /detokenize over the real app."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from starlette.types import Message

from contract.access import TARIFFS, Scope
from contract.catalog import ThinkingOptions
from contract.chat.engine import ChatBatch, ChatJob, ChatReply
from contract.errors import FAULTS
from contract.limits import CHAT_BODY_BYTES
from state import State
from tests.api.asgi import exchange, http_scope
from tests.api.conftest import MESSAGE, Api, app_over, events, refused, serving
from tests.catalogs import PRICE, behaving, chat
from tests.engines import ObedientChat
from tests.waiting import until


async def test_answer_is_a_chat_completion(api: Api) -> None:
    reply = await api.chat("say hello")
    assert reply.status_code == 200
    assert reply.json()["choices"][0]["message"]["content"] == "hello"


async def test_stream_ends_with_done(api: Api) -> None:
    reply = await api.chat("stream 3 0", stream=True)
    assert reply.headers["content-type"].startswith("text/event-stream")
    *chunks, last = events(reply)
    assert [json.loads(chunk)["choices"][0]["delta"]["content"] for chunk in chunks] == ["0 ", "1 ", "2 "]
    assert last == "[DONE]"


HALF = '{"text": "half a sen'
TOLD = {"role": "user", "content": "say hello"}
CUT_CALLS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [
            {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "a b", "arguments": HALF}}]},
            {"role": "tool", "tool_call_id": "c", "content": "bad arguments"},
            TOLD,
        ]
    },
    "/v1/responses": {
        "input": [
            {"type": "function_call", "call_id": "c", "name": "a b", "arguments": HALF},
            {"type": "function_call_output", "call_id": "c", "output": "bad arguments"},
            TOLD,
        ]
    },
    "/v1/messages": {
        "max_tokens": 50,
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "a b", "input": HALF}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "bad arguments"}]},
            TOLD,
        ],
    },
}


@pytest.mark.parametrize("path", CUT_CALLS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_goes_on_after_half_a_call(api: Api, path: str, stream: bool) -> None:
    body = {"model": "obedient", "top_p": 0, "stream": stream} | CUT_CALLS[path]
    reply = await api.send("POST", path, json=body)
    assert (reply.status_code, ("0 " if stream else "hello") in reply.text) == (200, True), reply.text


async def test_a_message_of_no_tokens_says_nothing(api: Api) -> None:
    for stream in (False, True):
        body = {"model": "obedient", "max_tokens": 0, "stream": stream, "messages": [TOLD]}
        reply = await api.send("POST", "/v1/messages", json=body)
        assert (reply.status_code, '"text"' in reply.text, "max_tokens" in reply.text) == (200, False, True), reply.text


async def test_failure_says_nothing_about_the_inside(api: Api) -> None:
    reply = await api.chat("fail")
    assert reply.json()["error"]["message"] == FAULTS["UPSTREAM_ERROR"].text


async def test_refusal_of_the_engine_keeps_its_sentence(api: Api) -> None:
    reply = await api.chat("refuse")
    assert reply.status_code == 400
    assert reply.json()["error"] == {
        "message": "the engine refuses this",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "invalid_request_error",
    }


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0]"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"tool_choice": "required"}, None),
        ({"tools": [{"type": "functoin"}]}, "tools[0]"),
        ({"structured_outputs": {"grammar": "root ::= root root"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a{1001}"}}, "structured_outputs.regex"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a/b"}}]}]},
            "messages[0].content[0].image_url.url",
        ),
    ],
)
async def test_bad_field_is_named(api: Api, fields: dict[str, object], param: str | None) -> None:
    """The place in the body; bounds of values are tested in tests/contract."""
    body = {"model": "obedient", "messages": [MESSAGE], **fields}
    refused(await api.send("POST", "/v1/chat/completions", json=body), 400, "invalid_request_error", param)


async def test_declared_length_over_the_limit_is_refused_before_the_key(api: Api) -> None:
    headers = {"content-length": str(CHAT_BODY_BYTES + 1)}
    reply = await api.send("POST", "/v1/chat/completions", "no key", content=b"{}", headers=headers)
    refused(reply, 413, "request_too_large")


@pytest.mark.parametrize(("surplus", "status"), [(-1, 200), (0, 200), (1, 413)])
async def test_undeclared_length_is_counted(api: Api, surplus: int, status: int) -> None:
    body = json.dumps({"model": "obedient", "messages": [MESSAGE]}).encode()
    body += b" " * (CHAT_BODY_BYTES + surplus - len(body))

    async def pieces() -> object:
        for start in range(0, len(body), 1 << 20):
            yield body[start : start + (1 << 20)]

    reply = await api.send("POST", "/v1/chat/completions", content=pieces())
    assert reply.status_code == status


@pytest.mark.parametrize(("user", "code"), [(None, "org_spend_limit"), ("ada", "user_spend_limit")])
async def test_a_spend_limit_is_402(api: Api, user: str | None, code: str) -> None:
    key = await api.key(Scope.CHAT, user="ada")
    await api.limit(5, user=user)
    refused(await api.chat(key=key, max_tokens=1), 402, code)


async def test_budget_of_nothing_forbids_every_billed_request_and_nothing_else(api: Api) -> None:
    await api.limit(0)
    assert (await api.chat(max_tokens=1)).status_code == 402
    assert (await api.send("GET", "/v1/models")).status_code == 200


async def test_stream_that_outgrows_the_budget_ends_with_402_and_is_billed(api: Api) -> None:
    await api.limit(2700)  # the first slice: 551 for the prompt, 2 x 1,024 for the answer; a second one has no room
    reply = await api.chat("stream 1500 0", stream=True)
    assert json.loads(events(reply)[-1])["error"]["code"] == "org_spend_limit"
    (line,) = await api.usage()
    assert 0 < line.cost_micro_eur <= 2700


async def test_concurrent_streams_of_a_key_are_bounded(api: Api) -> None:
    await api.organisation("small", "free")
    key = await api.key(Scope.CHAT, org="small")
    caller = await api.caller(key)
    async with AsyncExitStack() as streams:
        for _ in range(TARIFFS["free"].concurrent_streams):
            await streams.enter_async_context(api.state.rates.stream(caller))
        assert (await api.chat("stream 1 0", key=key, stream=True)).status_code == 429
    assert (await api.chat("stream 1 0", key=key, stream=True)).status_code == 200


CACHED, CUT = 4, 90


class Counting(ObedientChat):
    """Found 4 of its 7 prompt tokens in the cache, and lost 90 of a longer one; none where there is a seed."""

    async def complete(self, job: ChatJob) -> ChatReply:
        cut = 0 if job.request.seed else CUT
        return replace(await super().complete(job), cached_tokens=CACHED, cut_tokens=cut)

    async def stream(self, job: ChatJob) -> AsyncGenerator[ChatBatch, None]:
        async for batch in super().stream(job):
            yield ChatBatch(*batch[:3], CACHED, 0 if job.request.seed else CUT)


@asynccontextmanager
async def counting(state: State, prefix: str = "x-service-", **price: int) -> AsyncIterator[Api]:
    """An API over `Counting` at these further prices."""
    model = chat("obedient")
    assert model.serving
    runs = model.serving.model_copy(update={"adapter": f"{__name__}:Counting"})
    thinking = ThinkingOptions(switch="enable_thinking")
    model = model.model_copy(update={"serving": runs, "price": PRICE | price, "thinking": thinking})
    async with serving(behaving(obedient=model), state, header_prefix=prefix) as api:
        yield api


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("price", "input_micro_eur"),
    [({}, 7), ({"cached_input_tokens": 0}, 3), ({"cached_input_tokens": 250_000}, 4)],
)
async def test_cached_input_has_its_own_price_where_the_stanza_has_one(
    state: State, price: dict[str, int], input_micro_eur: int, streamed: bool
) -> None:
    async with counting(state, **price) as api:
        await api.chat("stream 3 0" if streamed else "say hello", stream=streamed)
        (line,) = await api.usage()
    assert line.cost_micro_eur == input_micro_eur + 3 * 2
    assert line.quantity == 10


async def test_a_budget_is_reserved_as_if_nothing_were_cached(state: State) -> None:
    async with counting(state, cached_input_tokens=0) as api:
        whole = 512 + 16 + len("say hello") + 2
        await api.limit(whole - 1)
        assert (await api.chat(max_tokens=1)).status_code == 402
        await api.limit(whole)
        assert (await api.chat(max_tokens=1)).status_code == 200


async def test_a_repeated_answer_still_tells_that_its_input_was_cut(state: State) -> None:
    async with counting(state, "x-acme-") as api:
        body = {"model": "obedient", "messages": [{"role": "user", "content": "say hello"}]}
        for replayed in (None, "true"):
            reply = await api.send("POST", "/v1/chat/completions", json=body, headers={"idempotency-key": "a" * 16})
            assert reply.headers.get("idempotent-replayed") == replayed
            assert reply.headers["x-acme-input-cut"] == str(CUT)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_template_variable_that_is_not_allowed_is_refused_before_the_engine(
    state: State, streamed: bool
) -> None:
    async with counting(state) as api:
        reply = await api.chat(stream=streamed, chat_template_kwargs={"add_generation_prompt": False})
        place = "chat_template_kwargs.add_generation_prompt"
        refused(reply, 400, "invalid_request_error", place, "`enable_thinking`")
        assert await api.usage() == []
        allowed = await api.chat(stream=streamed, chat_template_kwargs={"enable_thinking": False})
        assert allowed.status_code == 200


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


async def test_a_stream_of_completions_ends_with_done(api: Api) -> None:
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
