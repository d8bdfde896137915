"""Cohere's official SDK against POST /v2/rerank, over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from contract.access import Scope
from state import open_state
from tests.api.conftest import Api
from tests.api.serving import listening
from tests.catalogs import behaving, chat

cohere: Any = pytest.importorskip("cohere")

pytestmark = pytest.mark.anyio

ASKED = {"model": "longest", "query": "q", "documents": ["aa", "aaaa", "a"], "top_n": 2, "max_tokens_per_doc": 100}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[SimpleNamespace]:
    """Its address, with and without version, and a key."""
    state = await open_state(tmp_path)
    async with listening(behaving(obedient=chat("obedient")), state) as (port, service), httpx.AsyncClient() as client:
        api = Api(service, client)
        await api.organisation("acme")
        yield SimpleNamespace(address=f"http://127.0.0.1:{port}", key=await api.key(*Scope), api=api)


@pytest.mark.parametrize("version", ["", "/v1"])
async def test_both_clients_read_the_results(server: SimpleNamespace, version: str) -> None:
    about = {"api_key": server.key, "base_url": f"{server.address}{version}"}
    # The SDK leaves connections of its own open.
    with httpx.Client() as http:
        blocking = cohere.ClientV2(**about, httpx_client=http)
        replies = [await asyncio.to_thread(blocking.rerank, **ASKED)]
    async with httpx.AsyncClient() as async_http:
        replies.append(await cohere.AsyncClientV2(**about, httpx_client=async_http).rerank(**ASKED))
    for reply in replies:
        assert [(result.index, result.relevance_score) for result in reply.results] == [(1, 4.0), (0, 2.0)]
        assert reply.meta.billed_units.search_units == 1
        assert reply.id.startswith("req_")
    assert len(await server.api.usage()) == 2


@pytest.mark.parametrize(
    ("key", "change", "error", "says"),
    [
        (None, {"model": "nobody"}, "NotFoundError", "there is no model `nobody`"),
        (None, {"documents": []}, "BadRequestError", "1 to 1000"),
        ("prl_nobody", {}, "UnauthorizedError", "not valid"),
    ],
)
async def test_errors_are_those_of_the_sdk(
    server: SimpleNamespace, key: str | None, change: dict[str, Any], error: str, says: str
) -> None:
    async with httpx.AsyncClient() as http:
        client = cohere.AsyncClientV2(api_key=key or server.key, base_url=server.address, httpx_client=http)
        with pytest.raises(getattr(cohere, error), match=says):
            await client.rerank(**ASKED | change)
