"""Promises of all four wires of a chat: bills, failures, models, and fields that are left out, cut or too long."""

from __future__ import annotations

import re
from typing import Any

import pytest

from deployments.ingress.front.cors import listed_origins
from deployments.ingress.wire.replies import MOST_PLACES
from tests.api.conftest import Api, refused
from tests.api.engines import scripted
from tests.scripted import Script

BODIES: dict[str, Any] = {
    "/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}]},
    "/v1/responses": lambda text: {"input": text},
    "/v1/messages": lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 50},
    "/v1/completions": lambda text: {"prompt": text},
}
TOKENS = ["/v1/tokenize", "/v1/detokenize"]
SCRIPTED = [path for path in BODIES if path != "/v1/completions"]


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


@pytest.mark.parametrize("text", ["fail", "refuse", "stream 0 0 fail", "stream 3 0 fail"])
@pytest.mark.parametrize("path", BODIES)
async def test_a_failure_is_told_and_costs_nothing(api: Api, path: str, text: str) -> None:
    await api.limit(1_000_000)
    reply = await ask(api, path, text)
    if text == "stream 3 0 fail":
        assert reply.status_code == 200
        assert ("server_error" if path == "/v1/responses" else "upstream_error") in reply.text.split("\n\n")[-2]
        assert re.search("DONE|message_stop|response.completed", reply.text) is None
    else:
        code = (400, "invalid_request_error") if text == "refuse" else (502, "upstream_error")
        assert (reply.status_code, reply.json()["error"]["code"]) == code
    assert "secret" not in reply.text
    assert await api.usage() == []
    await api.state.ledger.settle_open()
    assert (await api.spend())["held_micro_eur"] == 0


@pytest.mark.parametrize("path", [*BODIES, *TOKENS, "/v1/messages/count_tokens"])
async def test_a_model_that_is_not_offered_is_not_found(api: Api, path: str) -> None:
    tokens = {"prompt": "hi", "tokens": [65]}
    body = BODIES[path.removesuffix("/count_tokens")]("hi") if path not in TOKENS else tokens
    for model in ("unknown", "absent", "lengths", ""):
        refused(await api.send("POST", path, json=body | {"model": model}), 404, "model_not_found", says="`obedient`")


@pytest.mark.parametrize("cut_tokens", [0, 12])
@pytest.mark.parametrize("path", SCRIPTED)
async def test_what_was_cut_off_the_input_is_told_in_a_header_and_in_usage(
    api: Api, path: str, cut_tokens: int
) -> None:
    scripted(api, Script(text="hello", cut_tokens=cut_tokens))
    for stream in (False, True):
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


CHOICES: dict[str, list[Any]] = {
    "/v1/chat/completions": [{"type": "web_search"}],
    "/v1/responses": [{"type": "web_search"}, {"type": "allowed_tools", "mode": "required", "tools": [SEARCH]}],
    "/v1/messages": [{"type": "tool", "name": "web_search"}],
}


@pytest.mark.parametrize(("path", "choice"), [(path, choice) for path, all_ in CHOICES.items() for choice in all_])
async def test_who_wants_just_that_tool_is_refused(api: Api, path: str, choice: Any) -> None:
    scripted(api, Script(text="hello"))
    reply = await api.send("POST", path, json=body(path, tool_choice=choice))
    assert reply.status_code == 400
    assert re.search("none|no built-in tools", reply.json()["error"]["message"])


@pytest.mark.parametrize(
    ("path", "choice"),
    [("/v1/chat/completions", "required"), ("/v1/responses", "required"), ("/v1/messages", {"type": "any"})],
)
async def test_a_call_is_demanded_only_where_a_tool_is_left(api: Api, path: str, choice: Any) -> None:
    scripted(api, Script(text="hello"))
    assert (await api.send("POST", path, json=body(path, tool_choice=choice))).status_code == 200
    alone = await api.send("POST", path, json=body(path, tool_choice=choice, tools=WIRES[path]["tools"][1:]))
    assert alone.status_code == 400
    assert re.search("this server runs (none|no built-in tools)", alone.json()["error"]["message"])


@pytest.mark.parametrize("count", [MOST_PLACES - 1, MOST_PLACES, MOST_PLACES + 1, 128])
async def test_the_header_is_not_endless(api: Api, count: int) -> None:
    scripted(api, Script(text="hello"))
    reply = await api.send("POST", "/v1/responses", json=body("/v1/responses", tools=[SEARCH] * count))
    places = reply.headers["x-service-ignored"].split(", ")
    whole = [f"tools[{index}]" for index in range(min(count, MOST_PLACES))]
    assert places == (whole if count <= MOST_PLACES else [*whole, "..."])


async def test_a_page_reads_it_and_the_operator_names_it(api: Api) -> None:
    scripted(api, Script(text="hello"))
    named = api.changed("http://127.0.0.1", allowed_origins=listed_origins([PAGE]), header_prefix="x-acme-")
    reply = await named.send("POST", "/v1/responses", json=body("/v1/responses"), headers={"origin": PAGE})
    assert reply.headers["x-acme-ignored"] == "tools[1]"
    assert "x-acme-ignored" in reply.headers["access-control-expose-headers"].split(", ")


async def test_a_repeated_answer_still_tells_it(api: Api) -> None:
    scripted(api, Script(text="hello"))
    for replayed in (None, "true"):
        headers = {"idempotency-key": "a" * 16}
        reply = await api.send("POST", "/v1/responses", json=body("/v1/responses"), headers=headers)
        assert reply.headers.get("idempotent-replayed") == replayed
        assert reply.headers["x-service-ignored"] == "tools[1]"


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
