"""Who has no key that opens has a rate by network, whatever is asked for; nobody with a key is refused for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx
import pytest

from contract.limits import KEYLESS_REQUESTS
from deployments.ingress.app import build_app
from deployments.ingress.wire.openapi import written
from state import keys
from tests.api.conftest import Api

pytestmark = pytest.mark.usefixtures("one_window")

DOCUMENT = "/openapi.json"
SAMPLE = "/v1/audio/voices/M1/samples/fr.mp3"
KEPT = "samples/obedient/M1-fr.mp3"
SEARCH = "/v1/mcp/docs/mcp"
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}

At = Callable[[str], AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def at(api: Api) -> At:
    """Clients of other addresses than that of `api.client`."""

    @asynccontextmanager
    async def client(address: str) -> AsyncIterator[httpx.AsyncClient]:
        app = api.client._transport.app  # type: ignore[attr-defined]
        transport = httpx.ASGITransport(app, client=(address, 1), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield http

    return client


def refused(reply: httpx.Response) -> None:
    assert (reply.status_code, reply.json()["error"]["code"]) == (429, "rate_limit_exceeded"), reply.text
    assert reply.headers["retry-after"] == reply.headers["x-ratelimit-reset"]
    assert (reply.headers["x-ratelimit-limit"], reply.headers["x-ratelimit-remaining"]) == (str(KEYLESS_REQUESTS), "0")


@pytest.mark.parametrize("path", [DOCUMENT, SAMPLE])
async def test_what_needs_no_key_has_a_rate_for_each_network(api: Api, at: At, path: str) -> None:
    for left in range(KEYLESS_REQUESTS - 1, -1, -1):
        reply = await api.client.get(path)
        assert (reply.status_code, reply.headers["x-ratelimit-remaining"]) == (200, str(left))
    refused(await api.client.get(path))
    refused(await api.client.post(SEARCH, json=LIST))
    async with at("192.0.2.1") as elsewhere:
        assert (await elsewhere.get(path)).status_code == 200
    assert (await api.client.get("/healthz")).status_code == 200
    assert (await api.send("GET", SAMPLE)).status_code == 200


async def test_a_sample_that_was_played_is_kept_in_memory(api: Api) -> None:
    await api.state.blobs.put(KEPT, b"first")
    assert (await api.client.get(SAMPLE)).content == b"first"
    await api.state.blobs.put(KEPT, b"second")
    assert (await api.client.get(SAMPLE)).content == b"first"


async def test_the_document_is_written_once(api: Api) -> None:
    first = await api.client.get(DOCUMENT)
    app = build_app(api.service)
    assert written(app) == first.content
    app.openapi_schema["paths"].clear()  # type: ignore[index]  # it has been made by now
    assert written(app) == first.content
    assert (first.headers["content-type"], bool(first.json()["paths"])) == ("application/json", True)


async def test_wrong_keys_of_a_network_are_429_beyond_its_rate_and_right_ones_never(api: Api, at: At) -> None:
    async def wrong(client: httpx.AsyncClient) -> httpx.Response:
        return await client.get("/v1/me", headers={"authorization": f"Bearer {keys.mint().text}"})

    for _ in range(KEYLESS_REQUESTS):
        assert (await wrong(api.client)).status_code == 401
    refused(await wrong(api.client))
    assert (await api.send("GET", "/v1/me")).status_code == 200
    assert (await api.send("GET", "/v1/me", await api.key())).status_code == 200, "a key that was not seen yet"
    assert (await api.client.post(SEARCH, json=LIST)).status_code == 200, "who sends no key is counted by himself"
    async with at("192.0.2.1") as elsewhere:
        assert (await wrong(elsewhere)).status_code == 401
