"""The endpoints of the Model Context Protocol, one of which wants no key."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from benchmarks.attacks.attack import NotTriedError, Saw, attack, each_answered
from benchmarks.attacks.bystander import standing_by
from benchmarks.attacks.target import Target, summary
from contract.limits import KEYLESS_BODY_BYTES, KEYLESS_REQUESTS

DOCS, ACCOUNT = "/mcp/docs/mcp", "/mcp/mcp"


def _call(query: str) -> dict[str, Any]:
    params = {"name": "search_docs", "arguments": {"query": query}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


BROKEN: dict[str, bytes] = {
    "no JSON": b"{",
    "nothing": b"",
    "no message": b'{"jsonrpc": "1.0"}',
    "a batch of a thousand": b"[" + b",".join([b'{"jsonrpc":"2.0","id":1,"method":"ping"}'] * 1_000) + b"]",
    "deep": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001,
    "a key twice": b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
    "half a character": b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
}


@attack(
    "120 searches a minute for each network, whatever `X-Forwarded-For` says; then 429 that says when; nobody waits"
)
async def searches_of_strangers(target: Target) -> Saw:
    """Searches without a key, as fast as they go, each with another address of a proxy."""
    async with target.stranger() as stranger:

        async def search(index: int) -> httpx.Response:
            forged = {"x-forwarded-for": f"203.0.113.{index % 250}, 198.51.100.{index % 250}"}
            return await stranger.post(DOCS, json=_call("a " * 200 + str(index)), headers=forged)

        await _offered(stranger)
        with standing_by(target) as waits:
            replies = await asyncio.gather(*(search(index) for index in range(target.size(200, 400))))
    answered = sum(reply.status_code == 200 for reply in replies)
    refused = [reply for reply in replies if reply.status_code == 429]
    # Two windows of a minute may be touched.
    bounded = 0 < answered <= 2 * KEYLESS_REQUESTS and answered + len(refused) == len(replies)
    told_when = bool(refused) and all("retry-after" in reply.headers for reply in refused)
    return Saw(f"{summary(replies)}; {waits}", waits.passed and bounded and told_when)


@attack("400 or 413 for each, and nobody else waits")
async def broken_messages(target: Target) -> Saw:
    """What is no message, too long, too deep or a thousand at once; with a key and without."""
    long = b'{"jsonrpc":"2.0","id":1,"method":"' + b"a" * KEYLESS_BODY_BYTES + b'"}'
    tries: dict[str, httpx.Response] = {}
    async with target.stranger() as stranger:
        await _offered(stranger)
        with standing_by(target) as waits:
            for name, body in (BROKEN | {"too long": long}).items():
                tries[f"{name} without a key"] = await stranger.post(DOCS, content=body)
                if name != "too long":
                    tries[f"{name} with a key"] = await target.send("POST", ACCOUNT, content=body)
    return each_answered(tries, {400, 413}, waits)


@attack("403 for each: no page of another site speaks through a browser")
async def pages_of_others(target: Target) -> Saw:
    """Web pages that let a visitor's browser call a server on his own machine."""
    pages = (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"host": "evil.example"},
        {"host": "evil.example:8000", "origin": "http://evil.example:8000"},
    )
    async with target.stranger() as stranger:
        await _offered(stranger)
        replies = [await stranger.post(DOCS, json=_call("keys"), headers=page) for page in pages]
    return Saw(summary(replies), {reply.status_code for reply in replies} == {403})


async def _offered(stranger: httpx.AsyncClient) -> None:
    if (await stranger.post(DOCS, json=_call("keys"))).status_code in {404, 405}:
        raise NotTriedError("no MCP here")
