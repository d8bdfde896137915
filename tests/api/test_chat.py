"""POST /chat/completions, /completions, /tokenize and /detokenize, and promises of all four wires of a chat."""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import httpx
import pytest

from contract.chat.engine import ChatBatch, ChatJob, ChatReply
from contract.limits import CHAT_BODY_BYTES
from deployments.ingress.front.cors import listed_origins
from deployments.ingress.wire.replies import MOST_PLACES
from state import State
from tests.api.conftest import MESSAGE, Api, events, refused, serving
from tests.api.engines import scripted
from tests.catalogs import PRICE, behaving, chat, with_serving
from tests.engines import ObedientChat
from tests.scripted import Script

TOLD = {"role": "user", "content": "say hello"}


async def test_a_message_of_no_tokens_says_nothing(api: Api) -> None:
    for stream in (False, True):
        body = {"model": "obedient", "max_tokens": 0, "stream": stream, "messages": [TOLD]}
        reply = await api.send("POST", "/v1/messages", json=body)
        assert (reply.status_code, '"text"' in reply.text, "max_tokens" in reply.text) == (200, False, True), reply.text


async def test_undeclared_length_is_counted(api: Api) -> None:
    async def pieces(body: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(body), 1 << 20):
            yield body[start : start + (1 << 20)]

    for surplus, status in ((-1, 200), (0, 200), (1, 413), (2, 415)):
        body = json.dumps({"model": "obedient", "messages": [MESSAGE]}).encode().ljust(CHAT_BODY_BYTES + surplus)
        headers = {"content-encoding": "br" if status == 415 else "identity"}
        reply = await api.send("POST", "/v1/chat/completions", content=pieces(body), headers=headers)
        assert reply.status_code == status


async def test_stream_that_outgrows_the_budget_ends_with_402_and_is_billed(api: Api) -> None:
    await api.limit(2700)  # the first slice: 551 for the prompt, 2 x 1,024 for the answer; a second one has no room
    reply = await api.chat("stream 1500 0", stream=True)
    assert json.loads(events(reply)[-1])["error"]["code"] == "org_spend_limit"
    (line,) = await api.usage()
    assert 0 < line.cost_micro_eur <= 2700


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
    model = with_serving(chat("obedient"), adapter=f"{__name__}:Counting")
    model = model.model_copy(update={"price": PRICE | price})
    async with serving(behaving(obedient=model), state, header_prefix=prefix) as api:
        yield api


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("price", "input_micro_eur"), [({}, 7), ({"cached_input_tokens": 0}, 3), ({"cached_input_tokens": 250_000}, 4)]
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


async def write(api: Api, prompt: Any = "say hello", key: str | None = None, **fields: Any) -> httpx.Response:
    return await api.send("POST", "/v1/completions", key, json={"model": "obedient", "prompt": prompt, **fields})


async def test_all_answers_together_are_held_against_the_budget(api: Api) -> None:
    # Of each prompt 528 tokens and the bytes of its text; of each answer 10 tokens, at 2.
    await api.limit(2 * (528 + 7) + 2 * 3 * 10 * 2)
    assert (await write(api, ["say one", "say two"], n=3, max_tokens=11)).status_code == 402
    assert (await write(api, ["say one", "say two"], n=3, max_tokens=10)).status_code == 200


async def test_text_and_messages_become_tokens_and_tokens_text_for_nothing(api: Api) -> None:
    await api.limit(1)
    body = {"model": "obedient", "prompt": "Hé", "return_token_strs": True}
    reply = await api.send("POST", "/v1/tokenize", json=body)
    assert reply.json() == {"count": 2, "max_model_len": 1000, "tokens": [72, 233], "token_strs": ["H", "é"]}
    back = await api.send("POST", "/v1/detokenize", json={"model": "obedient", "tokens": reply.json()["tokens"]})
    assert back.json() == {"prompt": "Hé"}
    body = {"model": "obedient", "messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True}
    reply = await api.send("POST", "/v1/tokenize", json=body)
    assert reply.json() == {"count": 2, "max_model_len": 1000, "tokens": [72, 105]}
    assert await api.usage() == []


async def test_too_much_text_never_reaches_an_engine(api: Api) -> None:
    engine = api.engine()
    for body in ({"prompt": "x" * 8001}, {"messages": [{"role": "user", "content": "x" * 8001}]}):
        reply = await api.send("POST", "/v1/tokenize", json=body | {"model": "obedient"})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, next(iter(body)))
    assert engine.callers == []


BODIES: dict[str, Any] = {
    "/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}]},
    "/v1/responses": lambda text: {"input": text},
    "/v1/messages": lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 50},
    "/v1/completions": lambda text: {"prompt": text},
}


async def ask(api: Api, path: str, text: str = "say hello", **fields: Any) -> Any:
    """One request, whose stream is as long as `text` says."""
    body = {"model": "obedient", "stream": text.startswith("stream")} | BODIES[path](text) | fields
    return await api.send("POST", path, json=body)


@pytest.mark.parametrize(("text", "cost"), [("say hello", 7 * 1 + 3 * 2), ("stream 4 0", 7 * 1 + 4 * 2)])
@pytest.mark.parametrize("path", BODIES)
async def test_what_was_produced_is_billed_once(api: Api, path: str, text: str, cost: int) -> None:
    reply = await ask(api, path, text)
    (line,) = await api.usage()
    about = (reply.headers["x-request-id"], "chat:obedient", "tokens", cost)
    assert (line.request_id, line.line, line.unit, line.cost_micro_eur) == about


@pytest.mark.parametrize("path", BODIES)
async def test_a_failure_is_told_and_costs_nothing(api: Api, path: str) -> None:
    await api.limit(1_000_000)
    for text in ("fail", "refuse", "stream 0 0 fail", "stream 3 0 fail"):
        reply = await ask(api, path, text)
        if text == "stream 3 0 fail":
            assert reply.status_code == 200
            assert ("server_error" if path == "/v1/responses" else "upstream_error") in reply.text.split("\n\n")[-2]
            assert re.search("DONE|message_stop|response.completed", reply.text) is None
        else:
            code = (400, "invalid_request_error") if text == "refuse" else (502, "upstream_error")
            error = reply.json()["error"]
            assert (reply.status_code, error["code"]) == code
            assert text != "refuse" or error["message"] == "the engine refuses this"
        assert "secret" not in reply.text
        assert await api.usage() == []
        await api.state.ledger.settle_open()
        assert (await api.spend())["held_micro_eur"] == 0


async def test_a_model_that_is_not_offered_is_not_found(api: Api) -> None:
    bodies = {path: body("hi") for path, body in BODIES.items()}
    bodies |= {"/v1/tokenize": {"prompt": "hi"}, "/v1/detokenize": {"tokens": [65]}}
    bodies["/v1/messages/count_tokens"] = bodies["/v1/messages"]
    for (path, body), model in product(bodies.items(), ("unknown", "absent", "lengths", "")):
        refused(await api.send("POST", path, json=body | {"model": model}), 404, "model_not_found", says="`obedient`")


@pytest.mark.parametrize("cut_tokens", [0, 12])
async def test_what_was_cut_off_the_input_is_told_in_a_header_and_in_usage(api: Api, cut_tokens: int) -> None:
    scripted(api, Script(text="hello", cut_tokens=cut_tokens))
    for path, stream in product(("/v1/chat/completions", "/v1/responses", "/v1/messages"), (False, True)):
        reply = await ask(api, path, stream=stream)
        assert reply.headers.get("x-service-input-cut", "0") == str(cut_tokens)
        assert bool(re.search(r'cut\w*": ?12\b', reply.text)) == bool(cut_tokens)


PAGE = "https://app.example.org"
SEARCH = {"type": "web_search"}
SCHEMA = {"type": "object"}
MESSAGES = [{"role": "user", "content": "hi"}]
OPENAI = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
NEWER = {"type": "function", "name": "add", "parameters": SCHEMA}
CRM = {"type": "namespace", "name": "crm", "description": "", "tools": [NEWER]}
THEIRS = {"name": "add", "input_schema": SCHEMA}
THEIR_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
WIRES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES, "tools": [OPENAI, SEARCH]},
    "/v1/responses": {"input": "hi", "tools": [CRM, SEARCH]},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 9, "tools": [THEIRS, THEIR_SEARCH]},
    "/v1/tokenize": {"messages": MESSAGES, "tools": [OPENAI, SEARCH]},
    "/v1/messages/count_tokens": {"messages": MESSAGES, "tools": [THEIRS, THEIR_SEARCH]},
}


def body(path: str, **fields: Any) -> dict[str, Any]:
    return {"model": "obedient"} | WIRES[path] | fields


@pytest.mark.parametrize("path", WIRES)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_that_another_server_would_run_is_left_out_and_told(api: Api, path: str, stream: bool) -> None:
    engine = scripted(api, Script(text="hello"))
    told = await api.send("POST", path, json=body(path, stream=stream))
    assert (told.status_code, told.headers["x-service-ignored"]) == (200, "tools[1]")
    (asked,) = engine.asked
    assert len(asked.offered) == 1
    silent = await api.send("POST", path, json=body(path, stream=stream, tools=WIRES[path]["tools"][:1]))
    assert silent.status_code == 200
    assert "x-service-ignored" not in silent.headers


async def test_the_header_is_not_endless(api: Api) -> None:
    scripted(api, Script(text="hello"))
    for count in (MOST_PLACES - 1, MOST_PLACES, MOST_PLACES + 1, 128):
        reply = await api.send("POST", "/v1/responses", json=body("/v1/responses", tools=[SEARCH] * count))
        whole = [f"tools[{index}]" for index in range(min(count, MOST_PLACES))]
        places = reply.headers["x-service-ignored"].split(", ")
        assert places == (whole if count <= MOST_PLACES else [*whole, "..."])


async def test_a_page_reads_it_and_the_operator_names_it(api: Api) -> None:
    scripted(api, Script(text="hello"))
    named = api.changed("http://127.0.0.1", allowed_origins=listed_origins([PAGE]), header_prefix="x-acme-")
    reply = await named.send("POST", "/v1/responses", json=body("/v1/responses"), headers={"origin": PAGE})
    assert reply.headers["x-acme-ignored"] == "tools[1]"
    assert "x-acme-ignored" in reply.headers["access-control-expose-headers"].split(", ")


async def test_a_repeated_answer_still_tells_it_and_that_its_input_was_cut(api: Api) -> None:
    scripted(api, Script(text="hello", cut_tokens=CUT))
    for replayed in (None, "true"):
        headers = {"idempotency-key": "a" * 16}
        reply = await api.send("POST", "/v1/responses", json=body("/v1/responses"), headers=headers)
        assert reply.headers.get("idempotent-replayed") == replayed
        assert (reply.headers["x-service-ignored"], reply.headers["x-service-input-cut"]) == ("tools[1]", str(CUT))


CHAT = {"model": "obedient", "messages": [{"role": "user", "content": "say hello"}], "logprobs": True}
RESPONSE = {"model": "obedient", "input": "say hello", "include": ["message.output_text.logprobs"]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "most", "param", "budget"),
    [
        ("/v1/chat/completions", CHAT, 65_536, "logprobs", "max_tokens"),
        ("/v1/chat/completions", CHAT | {"n": 8}, 8_192, "logprobs", "max_tokens"),
        ("/v1/chat/completions", CHAT | {"top_logprobs": 20}, 18_724, "top_logprobs", "max_completion_tokens"),
        ("/v1/responses", RESPONSE, 65_536, "include", "max_output_tokens"),
        ("/v1/responses", RESPONSE | {"top_logprobs": 20}, 18_724, "top_logprobs", "max_output_tokens"),
    ],
)
async def test_logprobs_are_bounded(
    api: Api, path: str, body: dict[str, Any], most: int, param: str, budget: str, stream: bool
) -> None:
    models: Any = api.service.catalog.chat
    models["obedient"] = models["obedient"].model_copy(update={"context_window": 262_144})
    engine = api.engine()
    for tokens, status in ((most - 1, 200), (most, 200), (None, 200), (most + 1, 400)):
        engine.callers.clear()
        reply = await api.send("POST", path, json=body | {budget: tokens, "stream": stream})
        assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert f"`{param}` of up to" in error["message"]
    assert engine.callers == []


async def test_a_window_that_is_small_enough_needs_no_bound(api: Api) -> None:
    for fields in ({"max_tokens": 10**6}, {"n": 8}, {"top_logprobs": 20}):
        reply = await api.send("POST", "/v1/chat/completions", json=CHAT | fields)
        assert reply.status_code == 200
