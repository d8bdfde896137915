"""Refusals of the MCP endpoints: foreign pages, long bodies, what is no message, wrong revisions, floods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from autoscaling.engine import NOBODY
from contract.access import Scope
from contract.limits import DOCS_QUERY_CHARS, DOCS_RESULTS, KEYLESS_BODY_BYTES, KEYLESS_REQUESTS, MCP_BODY_BYTES
from tests.api.conftest import Api, refused

KEYED, OPEN = "/mcp/mcp", "/mcp/docs/mcp"
PATHS = (KEYED, OPEN)
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


async def send(api: Api, path: str = KEYED, body: Any = LIST, **headers: str) -> httpx.Response:
    """One message; header names with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await api.send("POST", path, content=content, headers=named)


def rpc_error(reply: httpx.Response) -> int:
    """The code of a JSON-RPC error."""
    body = reply.json()
    assert body["jsonrpc"] == "2.0"
    return body["error"]["code"]


async def call(api: Api, tool: Any, arguments: Any, path: str = KEYED) -> httpx.Response:
    params = {"name": tool, "arguments": arguments}
    return await send(api, path, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


# --- pages of others -------------------------------------------------------------------------------------------------


@pytest.fixture
def public(api: Api) -> Api:
    """The same, reached at https://api.example.org."""
    return api.changed(public_url="https://api.example.org/voice")


OURS = (
    "api.example.org",
    "API.example.org:443",
    "127.0.0.1:8000",
    "[::1]:8000",
    "10.1.2.3",
    "localhost:9000",
    "parlance",
)
"""The public host, and those that no page can take."""
FOREIGN = ("evil.example", "evil.example:8000", "api.example.org.evil.example", "", "a b", "[::")
FOREIGN_ORIGINS = (
    "http://evil.example",
    "https://evil.example:8000",
    "null",
    "",
    "http://127.0.0.2",
    "file://",
    "http://[x",
)


@pytest.mark.parametrize("path", PATHS)
async def test_only_hosts_and_pages_of_ours_are_served(public: Api, path: str) -> None:
    local = "127.0.0.1:8000"
    rows: list[tuple[dict[str, str], int]] = [
        *(({"host": host}, 200) for host in OURS),
        *(({"host": local, "origin": origin}, 200) for origin in ("http://127.0.0.1:6274", "https://api.example.org")),
        *(({"host": host}, 403) for host in FOREIGN),
        *(({"host": local, "origin": origin}, 403) for origin in FOREIGN_ORIGINS),
        ({"host": "evil.example:8000", "origin": "http://evil.example:8000"}, 403),
    ]
    wrong = []
    for headers, status in rows:
        reply = await send(public, path, **headers)
        is_foreign = status == 403 and reply.status_code == 403 and reply.json()["error"]["code"] == "foreign_origin"
        if reply.status_code != status or (status == 403) != is_foreign:
            wrong.append((headers, reply.status_code, reply.text))
    assert wrong == []


async def test_without_a_public_address_a_domain_is_foreign(api: Api) -> None:
    assert (await send(api, host="api.example.org")).status_code == 403


# --- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "limit_bytes"), [(KEYED, MCP_BODY_BYTES), (OPEN, KEYLESS_BODY_BYTES)])
@pytest.mark.parametrize(("too_many", "status"), [(-1, 200), (0, 200), (1, 413)])
async def test_a_body_has_a_limit(api: Api, path: str, limit_bytes: int, too_many: int, status: int) -> None:
    body = json.dumps(LIST).encode().ljust(limit_bytes + too_many)
    assert (await send(api, path, body)).status_code == status

    async def undeclared() -> Any:
        yield body

    assert (await api.send("POST", path, content=undeclared())).status_code == status


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_that_does_not_come_is_given_up(api: Api, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.ingress.front.bodies.BODY_IDLE_S", 0.05)

    async def trickling() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    refused(await api.send("POST", path, content=trickling()), 408, "request_timeout")
    assert (api.service.concurrency.body_bytes.total, api.service.concurrency.calls.total) == (0, 0)


async def test_a_body_without_a_key_counts_for_its_address(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.ingress.front.concurrency.BODIES_OF_KEY_BYTES", 10)
    reply = await api.client.post(OPEN, json=LIST)
    refused(reply, 429, "rate_limit_exceeded")
    assert "this address" in reply.json()["error"]["message"]


async def test_a_tool_is_called_for_the_organisation_of_the_key(api: Api) -> None:
    engine = api.engine()
    call = {"name": "chat", "arguments": {"message": "say hello"}}
    await api.send("POST", KEYED, json=LIST | {"method": "tools/call", "params": call})
    (owner,) = engine.callers
    assert owner.startswith("org-")
    assert owner != NOBODY


REVISIONS = (None, "2025-06-18", "2025-11-25", "2026-07-28")
NO_MESSAGES: list[tuple[Any, dict[str, str], int]] = [
    *((body, {}, -32700) for body in (b"", b"{", b"\xff", b'{"id": NaN}', b'{"id": 1, "id": 2}', b"[" * 50_000)),
    (b'{"id": "\\ud800"}', {}, -32700),
    *((body, {}, -32600) for body in ({}, 7, "tools/list", None)),
    (LIST | {"jsonrpc": "1.0"}, {}, -32600),
    ({"jsonrpc": "2.0", "id": 1}, {}, -32600),
    (LIST | {"method": 7}, {}, -32600),
    *((LIST | {"id": id}, {}, -32600) for id in ({}, [1], 1.5, True)),
    (LIST | {"params": [1]}, {}, -32600),
    *(
        (batch, {"mcp_protocol_version": revision} if revision else {}, -32600)
        for batch in ([], [LIST], [LIST, LIST])
        for revision in REVISIONS
    ),
    *(
        (LIST, {"mcp_protocol_version": revision}, -32022)
        for revision in ("2024-11-05", "2025-03-26", "2026-07-29", "latest", "", "x" * 5000)
    ),
]
"""Bodies that are no JSON, no message, a batch, or of another revision, and the code of the refusal."""


@pytest.mark.parametrize("path", PATHS)
async def test_what_is_no_message_of_a_revision_is_refused(api: Api, path: str) -> None:
    wrong = []
    for body, headers, code in NO_MESSAGES:
        reply = await send(api, path, body, **headers)
        if (reply.status_code, rpc_error(reply)) != (400, code) or len(reply.content) > 500:
            wrong.append((str(body)[:40], str(headers)[:60], reply.status_code, reply.text[:500]))
        if code == -32022:
            assert reply.json()["error"]["data"]["supported"] == [*REVISIONS[1:]]
    assert wrong == []


NOT_HTTP: list[tuple[str, dict[str, str], int, str]] = [
    *(
        (method, {"accept": "text/event-stream"}, 405, "method_not_allowed")
        for method in ("GET", "DELETE", "PUT", "OPTIONS")
    ),
    *(
        ("POST", {"content-type": kind}, 415, "unsupported_media_type")
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp")
    ),
    *(
        ("POST", {"accept": accept}, 406, "not_acceptable")
        for accept in ("text/event-stream", "text/html", "image/*, text/plain")
    ),
]
"""Methods, content types and what a client takes that are refused."""


@pytest.mark.parametrize("path", PATHS)
async def test_another_method_or_type_is_refused(api: Api, path: str) -> None:
    wrong = []
    for method, headers, status, code in NOT_HTTP:
        content = json.dumps(LIST).encode() if method == "POST" else b""
        reply = await api.send(method, path, content=content, headers=headers)
        allowed = "POST" if status == 405 else None
        if (reply.status_code, reply.json()["error"]["code"], reply.headers.get("allow")) != (status, code, allowed):
            wrong.append((method, headers, reply.status_code, reply.text))
    assert wrong == []


async def test_a_client_that_takes_no_events_gets_json_though_it_sent_a_progress_token(api: Api) -> None:
    params = {"name": "chat", "arguments": {"message": "say hello"}, "_meta": {"progressToken": 1}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    reply = await send(api, body=body, accept="application/json")
    assert reply.headers["content-type"] == "application/json"
    assert reply.json()["result"]["content"][0]["text"] == "hello"


# --- tools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("tool", ["nothing", "", "x" * 5000, "Chat"])
async def test_an_unknown_tool_is_an_error_of_the_protocol(api: Api, path: str, tool: str) -> None:
    reply = await call(api, tool, {}, path)
    assert rpc_error(reply) == -32602
    assert len(reply.content) < 500


async def test_tools_of_the_account_are_not_there_without_a_key(api: Api) -> None:
    assert rpc_error(await call(api, "chat", {"message": "say hello"}, OPEN)) == -32602


@pytest.mark.parametrize("path", PATHS)
async def test_an_unknown_method_is_an_error_of_the_protocol(api: Api, path: str) -> None:
    assert rpc_error(await send(api, path, {"jsonrpc": "2.0", "id": 1, "method": "tools/destroy"})) == -32601


@pytest.mark.parametrize("path", PATHS)
async def test_nobody_is_held_for_news(api: Api, path: str) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {"_meta": meta, "notifications": {}}}
    reply = await send(api, path, body, mcp_protocol_version="2026-07-28", mcp_method="subscriptions/listen")
    assert rpc_error(reply) == -32601


@pytest.mark.parametrize("arguments", [[], "x", 7])
async def test_arguments_that_are_no_object_are_an_error_of_the_protocol(api: Api, arguments: Any) -> None:
    assert rpc_error(await call(api, "chat", arguments)) == -32602


@pytest.mark.parametrize(
    ("tool", "arguments", "param"),
    [
        ("chat", {}, None),
        ("chat", {"message": "a", "messages": [{"role": "user", "content": "b"}]}, None),
        ("chat", {"message": 7}, "message"),
        ("chat", {"messages": []}, "messages"),
        ("chat", {"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ("chat", {"message": "a", "max_tokens": 0}, "max_tokens"),
        ("chat", {"message": "a", "max_tokens": "5"}, "max_tokens"),
        ("chat", {"message": "a", "temperature": 1}, "temperature"),
        ("search", {"documents": ["a"]}, "query"),
        ("search", {"query": "q", "documents": []}, "documents"),
        ("search", {"query": "q", "documents": "a"}, "documents"),
        ("search", {"query": "q", "documents": ["a"] * 1001}, "documents"),
        ("image", {"prompt": 7}, "prompt"),
    ],
)
async def test_arguments_of_another_type_are_an_error_of_the_tool(
    api: Api, tool: str, arguments: Any, param: str | None
) -> None:
    billed = len(await api.usage())
    result = (await call(api, tool, arguments)).json()["result"]
    assert result["isError"] is True
    error = result["structuredContent"]["error"]
    assert (error["code"], error["param"]) == ("invalid_request_error", param)
    assert len(await api.usage()) == billed


@pytest.mark.parametrize(
    ("arguments", "is_error"),
    [
        ({"query": ""}, True),
        ({"query": "q" * DOCS_QUERY_CHARS}, False),
        ({"query": "q" * (DOCS_QUERY_CHARS + 1)}, True),
        ({"query": "q", "top_n": 0}, True),
        ({"query": "q", "top_n": 1}, False),
        ({"query": "q", "top_n": DOCS_RESULTS}, False),
        ({"query": "q", "top_n": DOCS_RESULTS + 1}, True),
        ({"query": "q", "top_n": 10**400}, True),
        ({"query": None}, True),
    ],
)
async def test_a_query_has_bounds(api: Api, arguments: Any, is_error: bool) -> None:
    assert (await call(api, "search_docs", arguments, OPEN)).json()["result"]["isError"] is is_error


# --- who, and how often ----------------------------------------------------------------------------------------------


async def test_a_key_without_the_scope_is_refused_before_the_body_is_read(api: Api) -> None:
    refused(await api.send("POST", KEYED, await api.key(Scope.CHAT, Scope.RERANK), content=b"{"), 403, "missing_scope")
    nobody = await api.client.post(KEYED, json=LIST)
    assert (nobody.status_code, nobody.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.usefixtures("one_window")
async def test_a_flood_without_a_key_is_429_with_the_headers_of_the_rate(api: Api) -> None:
    for left in range(KEYLESS_REQUESTS - 1, -1, -1):
        reply = await api.client.post(OPEN, json=LIST)
        assert (reply.status_code, reply.headers["x-ratelimit-remaining"]) == (200, str(left))
    reply = await api.client.post(OPEN, json=LIST)
    refused(reply, 429, "rate_limit_exceeded")
    assert reply.headers["retry-after"] == reply.headers["x-ratelimit-reset"]
    assert reply.headers["x-ratelimit-limit"] == str(KEYLESS_REQUESTS)
    assert (await send(api)).status_code == 200, "keys are counted by themselves"


@pytest.mark.usefixtures("one_window")
async def test_an_office_behind_one_address_may_search_forty_times_at_once_and_120_times_a_minute(api: Api) -> None:
    for _ in range(3):
        replies = await asyncio.gather(*(call(api, "search_docs", {"query": "keys"}, OPEN) for _ in range(40)))
        assert {reply.status_code for reply in replies} == {200}
    reply = await call(api, "search_docs", {"query": "keys"}, OPEN)
    assert (reply.status_code, 1 <= int(reply.headers["retry-after"]) <= 60) == (429, True)


@pytest.mark.usefixtures("one_window")
async def test_without_proxies_a_forged_address_is_the_same_client(api: Api) -> None:
    for number in range(KEYLESS_REQUESTS):
        await api.client.post(OPEN, json=LIST, headers={"x-forwarded-for": f"10.0.0.{number}"})
    assert (await api.client.post(OPEN, json=LIST, headers={"x-forwarded-for": "192.0.2.1"})).status_code == 429
