"""The MCP SDK, as editors and agents use it. The documentation needs no key."""

import os

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from steps import run, step

BASE_URL, KEY = f"{os.environ['PARLANCE_URL']}/v1", os.environ["PARLANCE_KEY"]


async def called(tool: str, **arguments: object):
    """The result of one tool."""
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {KEY}"}, timeout=120) as http,
        Client(streamable_http_client(f"{BASE_URL}/mcp/mcp", http_client=http)) as client,
    ):
        assert tool in {offered.name for offered in (await client.list_tools()).tools}
        result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return result


@step("tools: chat")
async def chat():
    assert (await called("chat", message="Name the capital of France.", max_tokens=20)).content[0].text


@step("tools: search")
async def search():
    hits = await called("search", query="capital of France", documents=["Bananas.", "Paris is in France."])
    assert hits.structured_content["results"][0]["index"] == 1


@step("the documentation, without a key")
async def documentation():
    async with (
        httpx2.AsyncClient() as http,
        Client(streamable_http_client(f"{BASE_URL}/mcp/docs/mcp", http_client=http)) as client,
    ):
        hits = await client.call_tool("search_docs", {"query": "retry after"})
        page = await client.call_tool("read_doc", {"id": "docs/api.md"})
    assert not hits.is_error
    assert "Retry-After" in page.content[0].text


@step("images", cannot="planned, not available", error="not_implemented")
async def image():
    await called("image", prompt="a cat")


if __name__ == "__main__":
    run()
