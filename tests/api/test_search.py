"""POST /embeddings and POST /rerank over the real app, and the SDK of Cohere."""

from __future__ import annotations

import asyncio
from typing import Any

import cohere
import httpx
import openai
import pytest

from tests.api.conftest import Api, refused


async def test_vectors_come_in_the_order_of_the_texts(api: Api) -> None:
    reply = await api.send("POST", "/v1/embeddings", json={"model": "lengths", "input": ["a", "bcd"]})
    assert [item["embedding"] for item in reply.json()["data"]] == [[1.0] * 4, [3.0] * 4]
    assert reply.json()["usage"] == {"prompt_tokens": 4, "total_tokens": 4}


async def test_official_client_asks_for_base64_and_reads_it(api: Api) -> None:
    client = openai.AsyncOpenAI(api_key=api.everything, base_url="http://test/v1", http_client=api.client)
    result = await client.embeddings.create(model="lengths", input="four")
    assert result.data[0].embedding == [4.0] * 4


@pytest.mark.parametrize(("dimensions", "status"), [(3, 400), (4, 200)])
async def test_dimensions_are_honoured_or_refused(api: Api, dimensions: int, status: int) -> None:
    body = {"model": "lengths", "input": "x", "dimensions": dimensions}
    reply = await api.send("POST", "/v1/embeddings", json=body)
    assert reply.status_code == status
    if status == 200:
        assert len(reply.json()["data"][0]["embedding"]) == dimensions
    else:
        assert reply.json()["error"]["param"] == "dimensions"


@pytest.mark.parametrize(("ids", "vectors"), [([1, 2, 3], [3.0]), ([[1, 2], [3]], [2.0, 1.0])])
async def test_token_ids_of_one_text_or_many_reach_the_engine(api: Api, ids: object, vectors: list[float]) -> None:
    reply = await api.send("POST", "/v1/embeddings", json={"model": "lengths", "input": ids})
    assert [item["embedding"][0] for item in reply.json()["data"]] == vectors


@pytest.mark.parametrize(("length", "truncate", "status"), [(256, False, 200), (257, False, 400), (257, True, 200)])
async def test_a_cut_can_be_forbidden(api: Api, length: int, truncate: bool, status: int) -> None:
    embedder = api.service.catalog.embeddings["lengths"]
    body = {"model": "lengths", "input": "x" * (length - 256 + embedder.context_window), "truncate": truncate}
    reply = await api.send("POST", "/v1/embeddings", json=body)
    assert reply.status_code == status
    if status == 400:
        assert reply.json()["error"]["code"] == "context_length_exceeded"
        assert await api.usage() == []


async def test_a_prompt_of_the_stanza_stands_before_the_text(api: Api) -> None:
    models = dict(api.service.catalog.embeddings)
    models["lengths"] = models["lengths"].model_copy(update={"prompts": {"query": "ask: ", "code": "c "}})
    prompted = api.with_models(embeddings=models)
    for kind, length in {"query": 6, "search_query": 6, "code": 3, "document": 1, "clustering": 1, None: 1}.items():
        body = {"model": "lengths", "input": "x", "input_type": kind}
        reply = await prompted.send("POST", "/v1/embeddings", json=body)
        assert reply.json()["data"][0]["embedding"][0] == length, kind


async def test_a_model_without_prompts_ignores_what_a_text_is_for(api: Api) -> None:
    reply = await api.send("POST", "/v1/embeddings", json={"model": "lengths", "input": "x", "input_type": "query"})
    assert reply.json()["data"][0]["embedding"][0] == 1.0


@pytest.mark.parametrize("kind", ["image", "", "QUERY", 1, ["query"], {}])
async def test_an_unknown_input_type_is_400_and_the_known_ones_are_named(api: Api, kind: object) -> None:
    reply = await api.send("POST", "/v1/embeddings", json={"model": "lengths", "input": "x", "input_type": kind})
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, "input_type")
    assert "query, document, code, classification, clustering, search_query" in error["message"]


@pytest.mark.parametrize(
    "input_",
    [
        "", [""], {"a": 1}, None, 7, [], [[]], [[1], []], [1, "a"], ["a", 1],
        [[1, "a"]], [True], [[True]], [1.0], [[1.5]], [-1], [[[1]]], [None],
    ],
)  # fmt: skip
async def test_input_that_is_no_text_is_400(api: Api, input_: object) -> None:
    reply = await api.send("POST", "/v1/embeddings", json={"model": "lengths", "input": input_})
    refused(reply, 400, "invalid_request_error", "input")


DOCUMENTS = ["aa", {"text": "aaaa"}, "a"]


async def test_results_are_sorted_by_relevance(api: Api) -> None:
    body = {"model": "longest", "query": "q", "documents": DOCUMENTS}
    results = (await api.send("POST", "/v1/rerank", json=body)).json()["results"]
    assert [(result["index"], result["relevance_score"]) for result in results] == [(1, 4.0), (0, 2.0), (2, 1.0)]
    assert all("document" not in result for result in results)


async def test_model_may_be_left_out(api: Api) -> None:
    reply = await api.send("POST", "/rerank", json={"query": "q", "documents": ["a"]})
    assert reply.json()["model"] == "longest"


@pytest.mark.parametrize("path", ["/v2/rerank", "/v1/v2/rerank"])
async def test_clients_of_coheres_second_version_get_the_same_answer(api: Api, path: str) -> None:
    body = {"model": "longest", "query": "q", "documents": ["aa", "aaaa", "a"], "top_n": 2, "max_tokens_per_doc": 9}
    ours, theirs = [(await api.send("POST", one, json=body)).json() for one in ("/v1/rerank", path)]
    assert theirs | {"id": None} == ours | {"id": None}
    assert [result["index"] for result in theirs["results"]] == [1, 0]
    assert theirs["meta"]["billed_units"]["search_units"] == 1
    assert len(await api.usage()) == 2


async def test_a_refused_body_names_its_field_and_costs_nothing(api: Api) -> None:
    """All bounds: tests/contract/test_embeddings.py."""
    refused(
        await api.send("POST", "/v1/rerank", json={"query": "", "documents": ["x"]}),
        400,
        "invalid_request_error",
        "query",
    )
    assert await api.usage() == []


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
