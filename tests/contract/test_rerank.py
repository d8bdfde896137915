"""POST /rerank: bounds of the body, and the order of the reply."""

from __future__ import annotations

from typing import Any

import pytest

from contract.rerank import MAX_DOCUMENTS, Ranking, RerankRequest, reply, search_units
from tests.contract.bodies import read, refusal


def rerank(**fields: Any) -> RerankRequest:
    return read(RerankRequest, {"query": "q", "documents": ["a", "b", "c"]} | fields)


def answer(request: RerankRequest, *scores: float) -> list[dict]:
    return reply(Ranking(scores, prompt_tokens=5), request, model="m", reply_id="rerank-1")["results"]


def test_documents_are_strings_or_objects_with_text() -> None:
    assert rerank(documents=["a", {"text": "b", "title": "t"}]).documents == ("a", "b")
    assert rerank(documents=[""]).documents == ("",)


@pytest.mark.parametrize("count", [0, 1, MAX_DOCUMENTS - 1, MAX_DOCUMENTS, MAX_DOCUMENTS + 1])
def test_documents_are_counted(count: int) -> None:
    if 1 <= count <= MAX_DOCUMENTS:
        assert len(rerank(documents=["x"] * count).documents) == count
    else:
        assert f"{count} documents" in refusal(rerank, documents=["x"] * count).message


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("documents", [None, "a", [1], [["a"]], [{"body": "a"}], [{"text": 1}]]),
        ("query", ["", None]),
        ("top_n", [0, 1.5]),
        ("return_documents", ["yes"]),
        ("model", [3]),
    ],
)
def test_wrong_fields_are_named(field: str, values: list[object]) -> None:
    for value in values:
        assert refusal(rerank, **{field: value}).param == field, value


def test_results_are_sorted_and_ties_keep_the_order_of_the_documents() -> None:
    results = answer(rerank(documents=["a", "b", "c", "d"]), 0.5, 0.9, 0.5, -0.1)
    assert [item["index"] for item in results] == [1, 0, 2, 3]
    assert [item["relevance_score"] for item in results] == [0.9, 0.5, 0.5, -0.1]
    assert all("document" not in item for item in results)


@pytest.mark.parametrize(("top_n", "count"), [(None, 3), (1, 1), (2, 2), (3, 3), (4, 3)])
def test_top_n_cuts_after_sorting(top_n: int | None, count: int) -> None:
    results = answer(rerank(top_n=top_n), 0.1, 0.2, 0.3)
    assert [item["index"] for item in results] == [2, 1, 0][:count]


def test_documents_come_back_only_when_asked() -> None:
    results = answer(rerank(return_documents=True), 0.1, 0.3, 0.2)
    assert [item["document"] for item in results] == [{"text": "b"}, {"text": "c"}, {"text": "a"}]


def test_the_frame_of_the_reply() -> None:
    body = reply(Ranking((0.1, 0.2, 0.3), prompt_tokens=5), rerank(), model="m", reply_id="rerank-1")
    assert (body["id"], body["object"], body["model"]) == ("rerank-1", "rerank", "m")
    assert body["usage"] == {"prompt_tokens": 5, "total_tokens": 5}
    assert body["meta"] == {"billed_units": {"search_units": 1}}


@pytest.mark.parametrize(("documents", "units"), [(1, 1), (99, 1), (100, 1), (101, 2), (1000, 10)])
def test_a_search_unit_is_a_hundred_documents(documents: int, units: int) -> None:
    assert search_units(documents) == units
