"""POST /embeddings and POST /rerank: bounds of the bodies, and the replies as an SDK reads them."""

import base64
import json
import struct
from typing import Any

from contract.catalog import EmbeddingModel, RerankModel
from contract.catalog.base import most_tokens
from contract.embeddings import MAX_INPUTS, TOKEN_TEXT_BYTES, Embeddings, EmbeddingsRequest, job_of, reply
from contract.rerank import MAX_DOCUMENTS, Ranking, RerankJob, RerankRequest, search_units
from contract.rerank import reply as ranked
from tests.contract.bodies import read, refusal, refused


def embed(**fields: Any) -> EmbeddingsRequest:
    return read(EmbeddingsRequest, {"model": "m"} | fields)


def model(*, dimensions: int = 384, window: int = 256) -> EmbeddingModel:
    return EmbeddingModel(id="m", owned_by="o", dimensions=dimensions, context_window=window)


def test_input_is_one_text_or_many_as_a_string_or_as_token_ids() -> None:
    inputs: list[tuple[object, object]] = [("hello", ("hello",)), (["a", "b"], ("a", "b")), ([1, 2], ((1, 2),))]
    inputs += [([[1, 2], [3]], ((1, 2), (3,))), ([[0], "x"], ((0,), "x"))]
    assert [embed(input=given).input for given, _ in inputs] == [read_as for _, read_as in inputs]
    assert "item 2" in refusal(embed, input=["a", "b", ""]).message
    assert "empty" in refusal(embed, input="").message


def test_texts_and_documents_are_counted() -> None:
    for ask, field, most in ((embed, "input", MAX_INPUTS), (rerank, "documents", MAX_DOCUMENTS)):
        for count in (1, most - 1, most):
            assert len(getattr(ask(**{field: ["x"] * count}), field)) == count
        for count in (0, most + 1):
            place, sentence = refused(ask, **{field: ["x"] * count})
            assert (place, str(count) in sentence) == (field, True), sentence


def test_the_estimate_of_token_ids_is_never_below_the_window_or_their_bytes() -> None:
    few, many = job_of(embed(input=[1]), model()), job_of(embed(input=[[1] * 300, [1]]), model())
    assert 128 < few.most_input_tokens(model()) <= 256
    assert many.most_input_tokens(model()) == 512
    assert job_of(embed(input=[[1] * 30, "x"]), model()).most_input_tokens(model(window=8192)) > 30 * TOKEN_TEXT_BYTES
    reranker = RerankModel(id="m", owned_by="o", context_window=512)
    assert RerankJob("query", ("a", "bc")).most_input_tokens(reranker) == most_tokens(1 + 2 + 3 * len("query"), 4)


def test_missing_and_wrong_fields_are_named_and_unknown_ones_ignored() -> None:
    assert embed(input="x", user="u", truncate=True).encoding_format == "float"
    assert refusal(embed).param == "input"
    wrong: list[tuple[Any, dict[str, list[Any]]]] = [
        (embed, {"input": [None, 7, {"text": "x"}, [None], [True], [{"text": "x"}], [1.0], [-1]], "model": [None]}),
        (embed, {"input": ["", [""], [], [[]], [[1], []], [1, "a"], ["a", 1], [[1, "a"]], [[True]], [[1.5]], [[[1]]]]}),
        (embed, {"dimensions": [0, -1, 1.5, "8", True], "encoding_format": ["int8"]}),
        (rerank, {"documents": [None, "a", [1], [["a"]], [{"body": "a"}], [{"text": 1}]], "query": ["", None]}),
        (rerank, {"top_n": [0, 1.5], "return_documents": ["yes"], "model": [3]}),
    ]
    for ask, fields in wrong:
        for field, values in fields.items():
            named = [refusal(ask, **{"input": "x", field: value}).param for value in values]
            assert named == [field] * len(values)


def test_dimensions_are_what_the_model_offers() -> None:
    for dimensions in (None, 384):
        assert job_of(embed(input="x", dimensions=dimensions), model()).texts == ("x",)
    for dimensions in (1, 383, 385):
        error = refusal(job_of, embed(input="x", dimensions=dimensions), model())
        assert (error.param, "384" in error.message, str(dimensions) in error.message) == ("dimensions", True, True)


ROWS = [(1.0, -0.5, 0.1), (0.0, 3.5e-8, 2.0)]
EMBEDDINGS = Embeddings(struct.pack("<6f", *ROWS[0], *ROWS[1]), dimensions=3, prompt_tokens=9)


def test_floats_survive_the_reply_exactly_and_base64_is_the_same_as_little_endian_float32() -> None:
    body = json.loads(b"".join(reply(EMBEDDINGS, model='a "quoted" id', encoding_format="float")))
    assert (body["object"], body["model"]) == ("list", 'a "quoted" id')
    assert body["usage"] == {"prompt_tokens": 9, "total_tokens": 9}
    assert [(item["object"], item["index"]) for item in body["data"]] == [("embedding", 0), ("embedding", 1)]
    rows = [bytes(row) for row in EMBEDDINGS.rows()]
    assert [struct.pack("<3f", *item["embedding"]) for item in body["data"]] == rows
    body = json.loads(b"".join(reply(EMBEDDINGS, model="m", encoding_format="base64")))
    assert [base64.b64decode(item["embedding"]) for item in body["data"]] == rows
    assert body["usage"]["total_tokens"] == 9


def rerank(**fields: Any) -> RerankRequest:
    return read(RerankRequest, {"query": "q", "documents": ["a", "b", "c"]} | fields)


def answer(request: RerankRequest, *scores: float) -> list[dict]:
    return ranked(Ranking(scores, prompt_tokens=5), request, model="m", reply_id="rerank-1")["results"]


def test_documents_are_strings_or_objects_with_text_and_come_back_only_when_asked() -> None:
    assert rerank(documents=["a", {"text": "b", "title": "t"}]).documents == ("a", "b")
    assert rerank(documents=[""]).documents == ("",)
    results = answer(rerank(return_documents=True), 0.1, 0.3, 0.2)
    assert [item["document"] for item in results] == [{"text": "b"}, {"text": "c"}, {"text": "a"}]


def test_results_are_sorted_ties_keep_the_order_of_the_documents_and_top_n_cuts_after_sorting() -> None:
    results = answer(rerank(documents=["a", "b", "c", "d"]), 0.5, 0.9, 0.5, -0.1)
    assert [item["index"] for item in results] == [1, 0, 2, 3]
    assert [item["relevance_score"] for item in results] == [0.9, 0.5, 0.5, -0.1]
    assert all("document" not in item for item in results)
    counts = {None: 3, 1: 1, 2: 2, 3: 3, 4: 3}
    cut = {top_n: answer(rerank(top_n=top_n), 0.1, 0.2, 0.3) for top_n in counts}
    indexes = {top_n: [item["index"] for item in found] for top_n, found in cut.items()}
    assert indexes == {top_n: [2, 1, 0][:count] for top_n, count in counts.items()}


def test_the_frame_of_the_reply_and_a_search_unit_is_a_hundred_documents() -> None:
    body = ranked(Ranking((0.1, 0.2, 0.3), prompt_tokens=5), rerank(), model="m", reply_id="rerank-1")
    assert (body["id"], body["object"], body["model"]) == ("rerank-1", "rerank", "m")
    assert body["usage"] == {"prompt_tokens": 5, "total_tokens": 5}
    assert body["meta"] == {"billed_units": {"search_units": 1}}
    assert [search_units(documents) for documents in (1, 99, 100, 101, 1000)] == [1, 1, 1, 2, 10]
