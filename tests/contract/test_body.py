"""The strict JSON reader and its sentences."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from pydantic import BaseModel, Field, field_validator

from contract.body import decode, parse
from contract.errors import MODEL_NOT_FOUND, TOO_MUCH_AT_ONCE, ApiError
from contract.limits import JSON_DEPTH, JSON_ESCAPES, JSON_NUMBERS, JSON_VALUES, VALUE_BYTES


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


def ones(count: int) -> bytes:
    return b"[" + b",".join([b"1"] * count) + b"]"


def taken(raw: bytes, most_values: int = JSON_VALUES) -> bool:
    try:
        decode(raw, most_values)
    except ApiError:
        return False
    return True


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_depth_is_bounded(more: int) -> None:
    assert taken(b"[" * (JSON_DEPTH + more) + b"]" * (JSON_DEPTH + more)) is (more <= 0)


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
        (b'{"a": "\\ud800"}', "unpaired surrogate"),
        (b"[" * JSON_VALUES, "nested deeper"),
        (b"[" * (JSON_DEPTH + 1) + b"]" * (JSON_DEPTH + 1), "nested deeper"),
        (ones(JSON_VALUES + 1), f"the body has more than {JSON_VALUES} keys and values"),
        (b'"' + b"\\\\" * (JSON_ESCAPES // 2 + 1) + b'"', "backslashes"),
        (b"1" * 4300 + b"0", "an integer has more than 4300 digits"),
        (b'{"a": 1e999}', "`a` is 1e999, which is outside the range of numbers, up to 1.8e308"),
        (b'{"a": -1e999}', "`a` is -1e999"),
        (b'{"a": [0, {"b c": [1.5, 1e309]}, 1e400]}', "`a[1].b c[1]` is 1e309"),
        (b"1E+400", "a number is 1E+400"),
        (b'{"a": ' + b"9" * 309 + b".0}", "`a` is 99999999999999999999999999999999..., which is outside"),
    ],
)
def test_what_is_not_json_is_refused_with_a_reason(raw: bytes, says: str) -> None:
    with pytest.raises(ApiError, match="invalid_json") as caught:
        decode(raw)
    assert says in caught.value.message


def test_the_largest_numbers_are_taken_as_they_came() -> None:
    largest = b"[1.7976931348623157e308, -1.7976931348623157e308, 5e-324, 1e-999, 1" + b"0" * 400 + b"]"
    assert decode(largest) == [sys.float_info.max, -sys.float_info.max, 5e-324, 0.0, 10**400]
    assert decode(b"9" * 4300) == 10**4300 - 1


def test_a_place_that_is_beyond_the_bounds_is_the_param() -> None:
    assert complaint(b'{"name": "x", "items": [{"size": 1e999}]}').param == "items[0].size"


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


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_values_are_counted(more: int) -> None:
    assert taken(ones(JSON_VALUES + more)) is (more <= 0)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_where_many_numbers_are_taken_keys_arrays_and_objects_are_as_few_as_elsewhere(more: int) -> None:
    assert taken(ones(JSON_NUMBERS + more), JSON_NUMBERS) is (more <= 0)
    # The array around them is one as well.
    assert taken(b"[" + b",".join([b"[]"] * (JSON_VALUES - 1 + more)) + b"]", JSON_NUMBERS) is (more <= 0)


def test_what_the_values_will_take_is_told_before_any_is_built() -> None:
    told: list[int] = []
    assert decode(b'{"a": [1, 2, 3]}', hold=told.append) == {"a": [1, 2, 3]}
    assert told == [5 * VALUE_BYTES]

    def refuse(_: int) -> None:
        raise TOO_MUCH_AT_ONCE("full", retry_after_s=1)

    with pytest.raises(ApiError, match="rate_limit_exceeded"):
        decode(b"{", hold=refuse)


def test_text_that_is_wider_in_memory_than_on_the_wire_is_held_as_wide() -> None:
    told: list[int] = []
    raw = '{"a": "🙂' + "x" * 10_000 + '"}'
    decode(raw.encode(), hold=told.append)
    assert 4 * 10_000 < len(raw.encode()) + sum(told) - 2 * VALUE_BYTES < 4 * 10_200


@pytest.mark.parametrize("more", [-2, 0, 2])
def test_escapes_are_counted(more: int) -> None:
    assert taken(b'"' + b"\\\\" * ((JSON_ESCAPES + more) // 2) + b'"') is (more <= 0)


@pytest.mark.parametrize("text", [",", ":", "[", "{", '",', "\\,", '\\",[', "\\\\,"])
def test_punctuation_inside_a_string_is_no_value(text: str) -> None:
    body = [text * (JSON_VALUES + 1), {"key, [with] {marks}:": text}]
    assert decode(json.dumps(body).encode()) == body


@pytest.mark.parametrize("item", [b"[]", b"{}", b'""', b'{"a":1}', b'{"":{}}', b'"\\""', b"null"])
def test_too_many_values_are_refused_whatever_they_are(item: bytes) -> None:
    with pytest.raises(ApiError, match="more than"):
        decode(b"[" + b",".join([item] * 10 * JSON_VALUES) + b"]")


@pytest.mark.parametrize("item", [b"[]", b"{}", b'{"a":1}', b'{"":{}}'])
def test_too_many_objects_are_refused_before_one_is_built(item: bytes) -> None:
    raw = b"[" + b",".join([item] * 10 * JSON_VALUES) + b"]"
    assert cpu_s(lambda: decode(raw)) < cpu_s(lambda: json.loads(raw))


def test_a_key_that_comes_twice_is_found_in_one_pass() -> None:
    keys = [f"k{index}" for index in range(JSON_VALUES // 2 - 1)]
    raw = ("{" + ",".join(f'"{key}":1' for key in [*keys, keys[-1]]) + "}").encode()
    with pytest.raises(ApiError, match=f"`{keys[-1]}` appears twice"):
        decode(raw)
    # Comparing every key with every other took a hundred times as long as reading them.
    assert cpu_s(lambda: decode(raw)) < 20 * cpu_s(lambda: json.loads(raw))
