"""The strict JSON reader and its sentences."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from pydantic import BaseModel, Field, field_validator

from contract.body import decode, parse
from contract.errors import MODEL_NOT_FOUND, ApiError
from contract.limits import JSON_DEPTH, JSON_VALUES


class Inner(BaseModel):
    size: int = Field(ge=1)


class Sample(BaseModel):
    name: str
    items: list[Inner] = []

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name == "nobody":
            raise ValueError("`name` must be somebody")
        return name


def complaint(raw: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse(Sample, raw)
    return caught.value


@pytest.mark.parametrize(("depth", "allowed"), [(JSON_DEPTH - 1, True), (JSON_DEPTH, True), (JSON_DEPTH + 1, False)])
def test_depth_is_bounded(depth: int, allowed: bool) -> None:
    raw = b"[" * depth + b"]" * depth
    if allowed:
        decode(raw)
    else:
        with pytest.raises(ApiError, match="nested deeper"):
            decode(raw)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not valid JSON"),
        (b"{", "line 1, column 2"),
        (b"\xff", "not UTF-8: byte 0"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        (b'{"a": NaN}', "`NaN`"),
        (b'{"a": -Infinity}', "`-Infinity`"),
        (b'{"a": 1, "b": 2, "a": 3}', "`a` appears twice"),
        (b'{"a": "\\ud800"}', "lone surrogate"),
        (b"[" * 100_000, "nested deeper"),
        (b"1" * 5000, "not valid JSON"),
    ],
)
def test_what_is_not_json_is_refused_with_a_reason(raw: bytes, says: str) -> None:
    with pytest.raises(ApiError, match="invalid_json") as caught:
        decode(raw)
    assert says in caught.value.message


def test_pair_of_surrogates_is_a_character() -> None:
    assert decode(json.dumps("\U0001f600").encode()) == "\U0001f600"


@pytest.mark.parametrize("raw", [b"[]", b"null", b"1", b'"x"', b"true"])
def test_body_must_be_an_object(raw: bytes) -> None:
    assert "must be a JSON object" in complaint(raw).message


@pytest.mark.parametrize(
    ("raw", "param", "says"),
    [
        (b"{}", "name", "`name` is missing"),
        (b'{"name": 1}', "name", "valid string"),
        (b'{"name": "nobody"}', "name", "must be somebody"),
        (b'{"name": "x", "items": [{"size": 1}, {"size": 0}]}', "items[1].size", "greater than or equal to 1"),
    ],
)
def test_finding_names_the_field(raw: bytes, param: str, says: str) -> None:
    error = complaint(raw)
    assert error.param == param
    assert says in error.message


def test_error_of_a_validator_is_kept() -> None:
    class Picky(BaseModel):
        model: str

        @field_validator("model")
        @classmethod
        def _known(cls, model: str) -> str:
            raise MODEL_NOT_FOUND("no such model")

    with pytest.raises(ApiError, match="404 model_not_found"):
        parse(Picky, b'{"model": "x"}')


# --- time in the event loop ------------------------------------------------------------------------------------------


def cpu_s(work: Callable[[], object]) -> float:
    """The least processor time of three runs. A refusal is work too."""

    def once() -> float:
        started = time.process_time()
        with suppress(ApiError):
            work()
        return time.process_time() - started

    return min(once() for _ in range(3))


def ones(count: int) -> bytes:
    return b"[" + b",".join([b"1"] * count) + b"]"


@pytest.mark.parametrize(("count", "is_taken"), [(-1, True), (0, True), (1, False)])
def test_values_are_counted(count: int, is_taken: bool) -> None:
    raw = ones(JSON_VALUES + count)
    if is_taken:
        assert len(decode(raw)) == JSON_VALUES + count
    else:
        with pytest.raises(ApiError, match=f"invalid_json: the body holds more than {JSON_VALUES} keys and values"):
            decode(raw)


@pytest.mark.parametrize("text", [",", ":", "[", "{", '",', "\\,", '\\",[', "\\\\,"])
def test_punctuation_inside_a_string_is_no_value(text: str) -> None:
    body = [text * (JSON_VALUES + 1), {"key, [with] {marks}:": text}]
    assert decode(json.dumps(body).encode()) == body


@pytest.mark.parametrize("item", [b"[]", b"{}", b'""', b'{"a":1}', b'{"":{}}', b'"\\""', b"null"])
def test_too_many_values_are_refused_whatever_they_are(item: bytes) -> None:
    with pytest.raises(ApiError, match="more than"):
        decode(b"[" + b",".join([item] * 1_000_000) + b"]")


@pytest.mark.parametrize("item", [b"[]", b"{}", b'{"a":1}', b'{"":{}}'])
def test_too_many_objects_are_refused_before_one_is_built(item: bytes) -> None:
    raw = b"[" + b",".join([item] * 1_000_000) + b"]"
    assert cpu_s(lambda: decode(raw)) < cpu_s(lambda: json.loads(raw))


def test_a_key_that_comes_twice_is_found_in_one_pass() -> None:
    keys = [f"k{index}" for index in range(40_000)]
    raw = ("{" + ",".join(f'"{key}":1' for key in [*keys, keys[-1]]) + "}").encode()
    with pytest.raises(ApiError, match="`k39999` appears twice"):
        decode(raw)
    # Comparing every key with every other took four hundred times as long as reading them.
    assert cpu_s(lambda: decode(raw)) < 20 * cpu_s(lambda: json.loads(raw))
