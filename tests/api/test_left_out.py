"""What a chat leaves out of a body is told in a header, on every wire, whole and streamed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from deployments.ingress.front.cors import listed_origins
from deployments.ingress.wire.replies import MOST_PLACES
from tests.api.conftest import Api
from tests.api.engines import scripted
from tests.scripted import Script

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
