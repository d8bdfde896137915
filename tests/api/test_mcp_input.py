"""Refusals of the MCP endpoints: foreign pages, long bodies, what is no message, wrong revisions, floods."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from autoscaling.engine import NOBODY
from contract.limits import DOCS_QUERY_CHARS, DOCS_RESULTS, KEYLESS_BODY_BYTES, MCP_BODY_BYTES
from tests.api.conftest import Api, refused
from tests.api.test_mcp import META

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


def calling(tool: Any, arguments: Any) -> dict[str, Any]:
    return LIST | {"method": "tools/call", "params": {"name": tool, "arguments": arguments}}


async def call(api: Api, tool: Any, arguments: Any, path: str = KEYED) -> httpx.Response:
    return await send(api, path, calling(tool, arguments))


@pytest.fixture
def public(api: Api) -> Api:
    """The same, reached at https://api.example.org."""
    return api.changed(public_url="https://api.example.org/voice")


OURS = (
    *("api.example.org", "API.example.org:443", "127.0.0.1:8000", "[::1]:8000", "10.1.2.3"),
    *("localhost:9000", "parlance"),
)
"""The public host, and those that no page can take."""
FOREIGN = ("evil.example", "evil.example:8000", "api.example.org.evil.example", "", "a b", "[::")
FOREIGN_ORIGINS = (
    *("http://evil.example", "https://evil.example:8000", "http://127.0.0.2", "http://[x"),
    *("file://", "null", ""),
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


@pytest.mark.parametrize(("path", "limit_bytes"), [(KEYED, MCP_BODY_BYTES), (OPEN, KEYLESS_BODY_BYTES)])
async def test_a_body_has_a_limit(api: Api, path: str, limit_bytes: int) -> None:
    async def undeclared(body: bytes) -> AsyncIterator[bytes]:
        yield body

    for too_many, status in ((-1, 200), (0, 200), (1, 413)):
        body = json.dumps(LIST).encode().ljust(limit_bytes + too_many)
        assert (await send(api, path, body)).status_code == status
        assert (await api.send("POST", path, content=undeclared(body))).status_code == status


async def test_a_body_without_a_key_counts_for_its_address(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.ingress.front.concurrency.BODIES_OF_KEY_BYTES", 10)
    reply = await api.client.post(OPEN, json=LIST)
    refused(reply, 429, "rate_limit_exceeded")
    assert "this address" in reply.json()["error"]["message"]


async def test_a_tool_is_called_for_the_organisation_of_the_key(api: Api) -> None:
    await call(api, "chat", {"message": "say hello"})
    (owner,) = api.engine().callers
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


LISTENING = LIST | {"method": "subscriptions/listen", "params": {"_meta": META, "notifications": {}}}
NO_CALLS: list[tuple[str, Any, dict[str, str], int]] = [
    *((path, calling(tool, {}), {}, -32602) for path in PATHS for tool in ("nothing", "", "x" * 5000, "Chat")),
    *((KEYED, calling("chat", arguments), {}, -32602) for arguments in ([], "x", 7)),
    (OPEN, calling("chat", {"message": "say hello"}), {}, -32602),  # it is there with a key
    *((path, LIST | {"method": "tools/destroy"}, {}, -32601) for path in PATHS),
    *(
        (path, LISTENING, {"mcp_protocol_version": "2026-07-28", "mcp_method": "subscriptions/listen"}, -32601)
        for path in PATHS
    ),
]
"""Unknown tools and methods, arguments that are no object, and the one that waits for news, with their errors."""


async def test_an_unknown_tool_or_method_is_an_error_of_the_protocol(api: Api) -> None:
    wrong = []
    for path, body, headers, code in NO_CALLS:
        reply = await send(api, path, body, **headers)
        if rpc_error(reply) != code or len(reply.content) >= 500:
            wrong.append((path, str(body)[:100], reply.text[:500]))
    assert wrong == []


WRONG_ARGUMENTS: list[tuple[str, dict[str, Any], str | None]] = [
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
]


async def test_arguments_of_another_type_are_an_error_of_the_tool(api: Api) -> None:
    wrong = []
    for tool, arguments, param in WRONG_ARGUMENTS:
        result = (await call(api, tool, arguments)).json()["result"]
        error = result["structuredContent"].get("error", {})
        if (result["isError"], error.get("code"), error.get("param")) != (True, "invalid_request_error", param):
            wrong.append((tool, str(arguments)[:100], result))
    assert (wrong, await api.usage()) == ([], [])


async def test_a_query_has_bounds(api: Api) -> None:
    for arguments, is_error in (
        ({"query": ""}, True),
        ({"query": "q" * DOCS_QUERY_CHARS}, False),
        ({"query": "q" * (DOCS_QUERY_CHARS + 1)}, True),
        ({"query": "q", "top_n": 0}, True),
        ({"query": "q", "top_n": 1}, False),
        ({"query": "q", "top_n": DOCS_RESULTS}, False),
        ({"query": "q", "top_n": DOCS_RESULTS + 1}, True),
        ({"query": "q", "top_n": 10**400}, True),
        ({"query": None}, True),
    ):
        reply = await call(api, "search_docs", arguments, OPEN)
        assert reply.json()["result"]["isError"] is is_error, str(arguments)[:100]


@pytest.mark.usefixtures("one_window")
async def test_an_office_behind_one_address_may_search_forty_times_at_once_and_120_times_a_minute(api: Api) -> None:
    for _ in range(3):
        replies = await asyncio.gather(*(call(api, "search_docs", {"query": "keys"}, OPEN) for _ in range(40)))
        assert {reply.status_code for reply in replies} == {200}
    reply = await call(api, "search_docs", {"query": "keys"}, OPEN)
    assert (reply.status_code, 1 <= int(reply.headers["retry-after"]) <= 60) == (429, True)
