"""Cohere's official SDK against POST /v2/rerank, over a socket."""

from __future__ import annotations

import asyncio
from typing import Any

import cohere
import httpx
import pytest

from tests.api.conftest import Api

ASKED = {"model": "longest", "query": "q", "documents": ["aa", "aaaa", "a"], "top_n": 2, "max_tokens_per_doc": 100}


@pytest.mark.parametrize("version", ["", "/v1"])
async def test_both_clients_read_the_results(api: Api, address: str, version: str) -> None:
    about = {"api_key": api.everything, "base_url": f"{address}{version}"}
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
    assert len(await api.usage()) == 2


@pytest.mark.parametrize(
    ("key", "change", "error", "says"),
    [
        (None, {"model": "nobody"}, "NotFoundError", "there is no model `nobody`"),
        (None, {"documents": []}, "BadRequestError", "1 to 1000"),
        ("prl_nobody", {}, "UnauthorizedError", "unknown or revoked"),
    ],
)
async def test_errors_are_those_of_the_sdk(
    api: Api, address: str, key: str | None, change: dict[str, Any], error: str, says: str
) -> None:
    async with httpx.AsyncClient() as http:
        client = cohere.AsyncClientV2(api_key=key or api.everything, base_url=address, httpx_client=http)
        with pytest.raises(getattr(cohere, error), match=says):
            await client.rerank(**ASKED | change)
