"""POST /rerank over the real app."""

from __future__ import annotations

import pytest

from tests.api.conftest import Api, refused

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


async def test_rerank_is_billed_by_tokens(api: Api) -> None:
    await api.send("POST", "/v1/rerank", json={"query": "q", "documents": ["ab", "c"]})
    (line,) = await api.usage()
    assert (line.line, line.quantity) == ("rerank:longest", 3)


async def test_a_refused_body_names_its_field_and_costs_nothing(api: Api) -> None:
    """All bounds: tests/contract/test_embeddings.py."""
    refused(
        await api.send("POST", "/v1/rerank", json={"query": "", "documents": ["x"]}),
        400,
        "invalid_request_error",
        "query",
    )
    assert await api.usage() == []
