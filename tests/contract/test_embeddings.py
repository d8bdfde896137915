"""POST /embeddings: bounds of the body, and the reply as an SDK reads it."""

from __future__ import annotations

import base64
import json
import struct

import pytest

from contract.body import parse
from contract.catalog import EmbeddingModel
from contract.embeddings import MAX_INPUTS, Embeddings, EmbeddingsRequest, job_of, reply
from contract.errors import ApiError


def read(**body: object) -> EmbeddingsRequest:
    return parse(EmbeddingsRequest, json.dumps({"model": "m"} | body).encode())


def refusal(**body: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(**body)
    assert caught.value.fault.status == 400
    return caught.value


def model(*, dimensions: int = 384) -> EmbeddingModel:
    return EmbeddingModel(id="m", owned_by="o", dimensions=dimensions, context_window=256)


def test_a_string_is_one_text() -> None:
    assert read(input="hello").input == ("hello",)
    assert read(input=["a", "b"]).input == ("a", "b")


@pytest.mark.parametrize("count", [1, MAX_INPUTS - 1, MAX_INPUTS])
def test_up_to_2048_texts_are_taken(count: int) -> None:
    assert len(read(input=["x"] * count).input) == count


@pytest.mark.parametrize("count", [0, MAX_INPUTS + 1])
def test_other_counts_are_refused(count: int) -> None:
    error = refusal(input=["x"] * count)
    assert f"{count} texts" in error.message
    assert error.param == "input"


@pytest.mark.parametrize(
    ("ids", "read_as"),
    [([1, 2, 3], ((1, 2, 3),)), ([[1, 2], [3]], ((1, 2), (3,))), ([0, 2**31 - 1], ((0, 2**31 - 1),))],
)
def test_token_ids_are_one_text_or_many(ids: object, read_as: object) -> None:
    assert read(input=ids).input == read_as


def test_the_estimate_of_token_ids_is_never_below_the_window_or_their_bytes() -> None:
    few, many = job_of(read(input=[1]), model()), job_of(read(input=[[1] * 300, [1]]), model())
    assert 128 < few.most_input_tokens(model()) <= 256
    assert many.most_input_tokens(model()) == 512


def test_an_empty_text_is_refused_by_its_index() -> None:
    assert "item 2" in refusal(input=["a", "b", ""]).message
    assert "empty" in refusal(input="").message


@pytest.mark.parametrize("value", [None, 7, {"text": "x"}, [None], [True], [{"text": "x"}]])
def test_what_is_no_text_is_refused(value: object) -> None:
    assert refusal(input=value).param == "input"


def test_missing_and_wrong_fields_are_named() -> None:
    assert refusal().param == "input"
    assert refusal(input="x", encoding_format="int8").param == "encoding_format"
    assert refusal(input="x", model=None).param == "model"


@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True])
def test_dimensions_must_be_a_positive_integer(value: object) -> None:
    assert refusal(input="x", dimensions=value).param == "dimensions"


def test_unknown_fields_are_ignored() -> None:
    assert read(input="x", user="u", truncate=True).encoding_format == "float"


@pytest.mark.parametrize("dimensions", [None, 384])
def test_dimensions_that_the_model_offers(dimensions: int | None) -> None:
    assert job_of(read(input="x", dimensions=dimensions), model()).texts == ("x",)


@pytest.mark.parametrize("dimensions", [1, 383, 385])
def test_other_dimensions_are_refused_with_the_offer(dimensions: int) -> None:
    with pytest.raises(ApiError, match="384") as caught:
        job_of(read(input="x", dimensions=dimensions), model())
    assert caught.value.param == "dimensions"
    assert str(dimensions) in caught.value.message


ROWS = [(1.0, -0.5, 0.1), (0.0, 3.5e-8, 2.0)]
EMBEDDINGS = Embeddings(struct.pack("<6f", *ROWS[0], *ROWS[1]), dimensions=3, prompt_tokens=9)


def test_floats_survive_the_reply_exactly() -> None:
    body = json.loads(b"".join(reply(EMBEDDINGS, model='a "quoted" id', encoding_format="float")))
    assert body["object"] == "list"
    assert body["model"] == 'a "quoted" id'
    assert body["usage"] == {"prompt_tokens": 9, "total_tokens": 9}
    assert [(item["object"], item["index"]) for item in body["data"]] == [("embedding", 0), ("embedding", 1)]
    for item, row in zip(body["data"], EMBEDDINGS.rows(), strict=True):
        assert struct.pack("<3f", *item["embedding"]) == bytes(row)


def test_base64_is_the_same_little_endian_float32() -> None:
    body = json.loads(b"".join(reply(EMBEDDINGS, model="m", encoding_format="base64")))
    assert [base64.b64decode(item["embedding"]) for item in body["data"]] == [bytes(row) for row in EMBEDDINGS.rows()]
    assert body["usage"]["total_tokens"] == 9
