"""The MCP endpoints as clients use them: the official client over a socket, and each handshake by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from contract.access import Scope
from contract.errors import WARMING_UP
from contract.mcp import DOCS_SHOWN
from tests.api.conftest import Api
from tests.api.engines import refusing
from tests.waiting import until

MODES = ("legacy", "2026-07-28")
"""First message of the official client: `initialize` (2025-11-25), or without a handshake."""
MODERN = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}


@dataclass
class Served:
    """The app of `api` at a port of loopback."""

    api: Api
    url: str

    @asynccontextmanager
    async def client(self, path: str = "/mcp/mcp", mode: str = MODERN, key: str | None = None) -> AsyncIterator[Client]:
        """The official client at `path`, with the key of every scope unless another is given."""
        headers = {"authorization": f"Bearer {self.api.everything if key is None else key}"} if key != "" else {}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(self.url + path, http_client=http), mode=mode) as client,
        ):
            yield client

    def under_way(self) -> int:
        """Number of calls the chat engine works on."""
        calls: int = self.api.engine().adapter.under_way
        return calls


@pytest.fixture
def served(api: Api, address: str) -> Served:
    return Served(api, address)


@pytest.mark.parametrize("mode", MODES)
async def test_each_tool_of_the_account_is_listed_and_called(served: Served, mode: str) -> None:
    async with served.client("/v1/mcp/mcp", mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["chat", "search", "image", "video"]
        chat = await client.call_tool("chat", {"message": "say hello"})
        assert (chat.content[0].text, chat.is_error) == ("hello", False)
        assert chat.structured_content["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        ranked = await client.call_tool("search", {"query": "q", "documents": ["a", "ccc", "bb"], "top_n": 2})
        assert [result["index"] for result in ranked.structured_content["results"]] == [1, 2]
        assert ranked.content[0].text == "1 (3.000): ccc\n2 (2.000): bb"
        pages = await client.call_tool("search", {"query": "warming_up"})
        assert pages.structured_content["results"][0]["id"].startswith(("docs/", "README.md"))
        told = {tool.name: tool.description for tool in (await client.list_tools()).tools}
        for name, made in (("image", "pictures"), ("video", "films")):
            refused = await client.call_tool(name, {"prompt": "a cat"})
            assert (refused.is_error, refused.structured_content["error"]["code"]) == (True, "not_implemented")
            text = refused.content[0].text
            assert f"{made} are not implemented" in text
            assert "do not call this tool again" in text
            assert "in words" in text
            assert "not implemented" in told[name].lower()


@pytest.mark.parametrize("mode", MODES)
async def test_each_tool_of_the_documentation_is_listed_and_called_without_a_key(served: Served, mode: str) -> None:
    async with served.client("/v1/mcp/docs/mcp", mode, key="") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["search_docs", "read_doc"]
        found = await client.call_tool("search_docs", {"query": "what costs an aborted stream?", "top_n": 3})
        ids = [result["id"] for result in found.structured_content["results"]]
        assert len(ids) == 3
        read = await client.call_tool("read_doc", {"id": ids[0]})
        assert read.content[0].text.startswith("#")
        missing = await client.call_tool("read_doc", {"id": "../pyproject.toml"})
        assert (missing.is_error, missing.structured_content["error"]["code"]) == (True, "not_found")
    assert await served.api.usage() == []
    assert served.under_way() == 0


@pytest.mark.parametrize("mode", MODES)
async def test_progress_is_told_while_the_answer_is_made(served: Served, mode: str) -> None:
    told: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    async with served.client(mode=mode) as client:
        answer = await client.call_tool("chat", {"message": "stream 3 0"}, progress_callback=hear)
    assert answer.content[0].text == "0 1 2 "
    assert told == [(1, "0 "), (2, "1 "), (3, "2 ")]
    assert [(line.line, line.cost_micro_eur) for line in await served.api.usage()] == [("chat:obedient", 7 + 2 * 3)]


@pytest.mark.parametrize("mode", MODES)
async def test_a_stream_that_fails_is_an_error_of_the_tool_and_costs_nothing(served: Served, mode: str) -> None:
    async def hear(*_: object) -> None:
        pass

    async with served.client(mode=mode) as client:
        answer = await client.call_tool("chat", {"message": "stream 2 0 fail"}, progress_callback=hear)
    assert (answer.is_error, answer.structured_content["error"]["code"]) == (True, "upstream_error")
    assert await served.api.usage() == []


def initialize(revision: str) -> dict[str, Any]:
    about = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}


@pytest.mark.parametrize("path", ["/mcp/mcp", "/mcp/docs/mcp"])
async def test_each_handshake(api: Api, path: str) -> None:
    for revision in ("2025-06-18", "2025-11-25"):
        reply = await api.send("POST", path, json=initialize(revision))
        assert reply.status_code == 200
        assert reply.json()["result"]["protocolVersion"] == revision
        assert reply.json()["result"]["capabilities"]["tools"] == {"listChanged": False}
        assert "mcp-session-id" not in reply.headers
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        taken = await api.send("POST", path, json=ready, headers={"mcp-protocol-version": revision})
        assert (taken.status_code, taken.content) == (202, b"")
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        listed = await api.send("POST", path, json=listing, headers={"mcp-protocol-version": revision})
        assert listed.json()["result"]["tools"]
    for revision in ("2024-11-05", "2025-03-26", "2026-07-28", "1"):
        offered = (await api.send("POST", path, json=initialize(revision))).json()["result"]["protocolVersion"]
        assert offered == "2025-11-25", "the newest that has a handshake"
    body = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "server/discover"}
    reply = await api.send("POST", path, json=body, headers=headers)
    assert (reply.status_code, reply.json()["result"]["supportedVersions"]) == (200, [MODERN])


def calling(tool: str, arguments: Any, **meta: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments} | ({"_meta": meta} if meta else {})
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


async def call(api: Api, tool: str, arguments: Any, key: str | None = None) -> Any:
    reply = await api.send("POST", "/mcp/mcp", key, json=calling(tool, arguments))
    assert reply.status_code == 200, reply.text
    return reply.json()["result"]


@pytest.mark.parametrize(
    ("tool", "arguments", "scope"),
    [("chat", {"message": "say hello"}, "chat"), ("search", {"query": "q", "documents": ["a"]}, "rerank")],
)
async def test_a_tool_needs_the_scope_of_what_it_does(api: Api, tool: str, arguments: Any, scope: str) -> None:
    refused = await call(api, tool, arguments, await api.key(Scope.MCP))
    assert refused["isError"] is True
    assert refused["structuredContent"]["error"]["code"] == "missing_scope"
    assert f"`{scope}`" in refused["content"][0]["text"]
    assert (await call(api, tool, arguments, await api.key(Scope.MCP, Scope(scope))))["isError"] is False
    assert len(await api.usage()) == 1


async def test_each_call_that_used_an_engine_leaves_one_line_and_documentation_needs_no_other_scope(api: Api) -> None:
    for count, fields in ((DOCS_SHOWN, {}), (2, {"top_n": 2})):
        found = await call(api, "search", {"query": "rate limits"} | fields, await api.key(Scope.MCP))
        assert (found["isError"], len(found["structuredContent"]["results"])) == (False, count)
    await call(api, "chat", {"message": "say hello"})
    await call(api, "search", {"query": "q", "documents": ["aa", "b"]})
    await call(api, "image", {"prompt": "a cat"})
    lines = [(line.line, line.quantity) for line in await api.usage()]
    assert lines == [("chat:obedient", 10), ("rerank:longest", 3)]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ({"message": "fail"}, "upstream_error", ""),
        ({"message": "hi"}, "warming_up", "(try again in 17 s)"),
        ({"message": "hi"}, "org_spend_limit", ""),
        ({"message": "hi", "model": "gpt-9"}, "model_not_found", "`obedient`"),
    ],
)
async def test_a_refusal_is_an_error_of_the_tool_and_costs_nothing(
    api: Api, arguments: Any, code: str, says: str
) -> None:
    if code == "warming_up":
        refusing(api, WARMING_UP(retry_after_s=17))
    if code == "org_spend_limit":
        await api.limit(0)
    result = await call(api, "chat", arguments)
    error = result["structuredContent"]["error"]
    assert (result["isError"], error["code"]) == (True, code)
    assert error.get("retry_after_s") == (17 if code == "warming_up" else None)
    assert says in result["content"][0]["text"]
    assert "secret" not in str(result)
    assert await api.usage() == []


async def test_a_conversation_and_a_token_limit_reach_the_engine(api: Api) -> None:
    turns = [{"role": "user", "content": "say no"}, {"role": "assistant", "content": "no"}]
    said = await call(api, "chat", {"messages": [*turns, {"role": "user", "content": "say yes"}], "max_tokens": 5})
    assert said["content"][0]["text"] == "yes"


def modern(tool: str, arguments: Any, **meta: Any) -> dict[str, Any]:
    """Body and headers of a call in the current revision."""
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool}
    return {"json": calling(tool, arguments, **META, **meta), "headers": headers}


def handshaken(tool: str, arguments: Any, **meta: Any) -> dict[str, Any]:
    """Body and headers of a call in a revision with a handshake."""
    return {"json": calling(tool, arguments, **meta), "headers": {"mcp-protocol-version": "2025-11-25"}}


@pytest.mark.parametrize("revision", [modern, handshaken])
async def test_a_client_that_leaves_frees_the_engine_while_others_go_on(served: Served, revision: Any) -> None:
    key = {"authorization": f"Bearer {served.api.everything}"}
    async with served.client() as neighbour, httpx.AsyncClient(headers=key) as leaving:
        request = asyncio.create_task(leaving.post(f"{served.url}/mcp/mcp", **revision("chat", {"message": "hold 60"})))
        await until(served.under_way)
        request.cancel()
        answers = await asyncio.gather(*(neighbour.call_tool("chat", {"message": "say hello"}) for _ in range(19)))
        assert {answer.content[0].text for answer in answers} == {"hello"}
        await until(lambda: not served.under_way())
    lines = await served.api.usage()
    assert len(lines) == 20
    (left,) = [line for line in lines if "output_tokens" not in line.quantities]
    assert left.quantities == {"input_tokens": 2}, "the leaver pays its question"


@pytest.mark.parametrize("revision", [modern, handshaken])
async def test_a_client_that_leaves_a_stream_frees_the_engine_and_pays_for_what_was_made(
    served: Served, revision: Any
) -> None:
    call = revision("chat", {"message": "stream 3 20"}, progressToken="t")
    call["headers"]["authorization"] = f"Bearer {served.api.everything}"
    async with httpx.AsyncClient() as client, client.stream("POST", f"{served.url}/mcp/mcp", **call) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        async for line in reply.aiter_lines():
            if "notifications/progress" in line:
                break
    await until(lambda: not served.under_way())

    async def is_billed() -> bool:
        return [line.cost_micro_eur for line in await served.api.usage()] == [7 + 2 * 1]

    await until(is_billed)
