"""The strict JSON reader and its sentences, and numeric bounds of bodies against the schemas that they follow."""

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from contract.body import decode, parse
from contract.chat.request import ChatRequest
from contract.completions import CompletionRequest
from contract.embeddings import EmbeddingsRequest
from contract.errors import MODEL_NOT_FOUND, TOO_MUCH_AT_ONCE, ApiError
from contract.limits import JSON_DEPTH, JSON_ESCAPES, JSON_NUMBERS, JSON_VALUES, VALUE_BYTES
from contract.messages.request import MessagesRequest
from contract.rerank import RerankRequest
from contract.responses.request import ResponsesRequest
from tests.contract.bodies import chat_request, refusal


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
        if name == "gone":
            raise MODEL_NOT_FOUND("no such model")
        return name


def ones(count: int) -> bytes:
    return b"[" + b",".join([b"1"] * count) + b"]"


def taken(raw: bytes, most_values: int = JSON_VALUES) -> bool:
    try:
        decode(raw, most_values)
    except ApiError:
        return False
    return True


NO_JSON: list[tuple[bytes, str]] = [
    (b"", "not valid JSON"),
    (b"{", "line 1, column 2"),
    (b"\xff", "not UTF-8: byte 0"),
    (b"\xef\xbb\xbf{}", "not valid JSON"),
    (b'{"a": NaN}', "`NaN`"),
    (b'{"a": -Infinity}', "`-Infinity`"),
    (b'{"a": 1, "b": 2, "a": 3}', "`a` appears twice"),
    (b'{"a": "\\ud800"}', "unpaired surrogate"),
    (b'{"a": "\xed\xa0\x80"}', "not UTF-8: byte 7"),
    (b'{"a": {"b": {"c": 1, "c": 2}}}', "`c` appears twice"),
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
]


def test_what_is_not_json_is_refused_with_a_reason() -> None:
    for raw, says in NO_JSON:
        with pytest.raises(ApiError, match="invalid_json") as caught:
            pytest.fail(f"{raw[:40]!r} gave {decode(raw)}")
        assert says in caught.value.message, raw[:40]


def test_the_largest_numbers_are_taken_as_they_came_and_a_pair_of_surrogates_is_a_character() -> None:
    largest = b"[1.7976931348623157e308, -1.7976931348623157e308, 5e-324, 1e-999, 1" + b"0" * 400 + b"]"
    assert decode(largest) == [sys.float_info.max, -sys.float_info.max, 5e-324, 0.0, 10**400]
    assert decode(b"9" * 4300) == 10**4300 - 1
    assert decode(json.dumps("\U0001f600").encode()) == "\U0001f600"


FINDINGS: list[tuple[bytes, str | None, str]] = [
    (b"{}", "name", "`name` is missing"),
    (b'{"name": 1}', "name", "a number was sent; send a string"),
    (b'{"name": "nobody"}', "name", "must be somebody"),
    (b'{"name": "x", "items": [{"size": 1}, {"size": 0}]}', "items[1].size", "`: 0 was sent; send at least 1"),
    (b'{"name": "x", "items": [{"size": 1e999}]}', "items[0].size", "outside the range"),
    *((raw, None, "must be a JSON object") for raw in (b"[]", b"null", b"1", b'"x"', b"true")),
]


def test_a_finding_names_the_field_and_an_error_of_a_validator_is_kept() -> None:
    for raw, param, says in FINDINGS:
        with pytest.raises(ApiError) as caught:
            parse(Sample, raw)
        assert (caught.value.param, says in caught.value.message) == (param, True), caught.value.message
    refusal(parse, Sample, b'{"name": "gone"}', fault=MODEL_NOT_FOUND)
    of_a_handle = refusal(chat_request, frequency_penalty=math.inf)
    assert of_a_handle.message == "`frequency_penalty`: input should be a finite number"


def cpu_s(work: Callable[[], object]) -> float:
    """The least processor time of three runs. A refusal is work too."""

    def once() -> float:
        started = time.process_time()
        with suppress(ApiError):
            work()
        return time.process_time() - started

    return min(once() for _ in range(3))


def test_what_the_values_will_take_is_told_before_any_is_built() -> None:
    told: list[int] = []
    assert decode(b'{"a": [1, 2, 3]}', hold=told.append) == {"a": [1, 2, 3]}
    assert told == [5 * VALUE_BYTES]

    def refuse(_: int) -> None:
        raise TOO_MUCH_AT_ONCE("full", retry_after_s=1)

    refusal(decode, b"{", hold=refuse, fault=TOO_MUCH_AT_ONCE)


def test_text_that_is_wider_in_memory_than_on_the_wire_is_held_as_wide() -> None:
    told: list[int] = []
    raw = '{"a": "🙂' + "x" * 10_000 + '"}'
    decode(raw.encode(), hold=told.append)
    assert 4 * 10_000 < len(raw.encode()) + sum(told) - 2 * VALUE_BYTES < 4 * 10_200


def test_punctuation_inside_a_string_is_no_value() -> None:
    for text in (",", ":", "[", "{", '",', "\\,", '\\",[', "\\\\,"):
        body = [text * (JSON_VALUES + 1), {"key, [with] {marks}:": text}]
        assert decode(json.dumps(body).encode()) == body, text


def test_depth_values_and_escapes_are_counted() -> None:
    for more in (-1, 0, 1):
        escapes = (JSON_ESCAPES + 2 * more) // 2
        bodies = {
            "depth": (b"[" * (JSON_DEPTH + more) + b"]" * (JSON_DEPTH + more), JSON_VALUES),
            "values": (ones(JSON_VALUES + more), JSON_VALUES),
            "escapes": (b'"' + b"\\\\" * escapes + b'"', JSON_VALUES),
            "numbers where many are taken": (ones(JSON_NUMBERS + more), JSON_NUMBERS),
            # The array around them is one as well.
            "arrays there": (b"[" + b",".join([b"[]"] * (JSON_VALUES - 1 + more)) + b"]", JSON_NUMBERS),
        }
        assert {name: taken(*body) for name, body in bodies.items()} == dict.fromkeys(bodies, more <= 0)


def test_too_many_objects_are_refused_before_one_is_built() -> None:
    for item in (b"[]", b"{}", b'""', b'{"a":1}', b'{"":{}}', b'"\\""', b"null"):
        raw = b"[" + b",".join([item] * 10 * JSON_VALUES) + b"]"
        with pytest.raises(ApiError, match="more than"):
            decode(raw)
        if item[:1] in b"[{":
            assert cpu_s(lambda raw=raw: decode(raw)) < cpu_s(lambda raw=raw: json.loads(raw)), item


def test_a_key_that_comes_twice_is_found_in_one_pass() -> None:
    keys = [f"k{index}" for index in range(JSON_VALUES // 2 - 1)]
    raw = ("{" + ",".join(f'"{key}":1' for key in [*keys, keys[-1]]) + "}").encode()
    with pytest.raises(ApiError, match=f"`{keys[-1]}` appears twice"):
        decode(raw)
    # Comparing every key with every other took a hundred times as long as reading them.
    assert cpu_s(lambda: decode(raw)) < 20 * cpu_s(lambda: json.loads(raw))


INFINITY = math.inf
MODELS = (ChatRequest, CompletionRequest, ResponsesRequest, MessagesRequest, EmbeddingsRequest, RerankRequest)
LOWEST = {"minimum": 0, "exclusiveMinimum": 1, "minLength": 0, "minItems": 0}
HIGHEST = {"maximum": 0, "exclusiveMaximum": -1, "maxLength": 0, "maxItems": 0, "maxProperties": 0}
"""Keywords of a bound, and what lies between their value and the nearest whole number that is allowed."""

DRAWING = {"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)}
VLLM = {"top_k": (-1, INFINITY), "min_p": (0, 1)}
FOLLOWED: dict[str, dict[str, tuple[float, float]]] = {
    "ChatRequest": DRAWING
    | VLLM
    | {
        "max_tokens": (1, INFINITY),
        "max_completion_tokens": (1, INFINITY),
        "n": (1, 128),
        "top_logprobs": (0, 20),
        "seed": (-(2**63), 2**63 - 1),
        "stop": (0, 4),
        "tools": (0, 128),
        "messages": (1, INFINITY),
    },
    "Function": {"name": (1, 64)},
    "CompletionRequest": DRAWING
    | VLLM
    | {"max_tokens": (0, INFINITY), "n": (1, 128), "logprobs": (0, 5), "seed": (-(2**63), 2**63 - 1), "stop": (0, 4)},
    "ResponsesRequest": {
        "temperature": (0, 2),
        "top_p": (0, 1),
        "max_output_tokens": (16, INFINITY),
        "top_logprobs": (0, 20),
        "tools": (0, 128),
        "metadata": (0, 16),
        "metadata keys": (0, 64),
        "metadata values": (0, 512),
        "user": (0, 512),
        "safety_identifier": (0, 128),
        "prompt_cache_key": (0, 512),
    },
    "ClientTool": {"name": (1, 128)},
    "MessagesRequest": {
        "max_tokens": (0, INFINITY),
        "temperature": (0, 1),
        "top_p": (0, 1),
        "top_k": (0, INFINITY),
        "messages": (1, INFINITY),
    },
    "MessageTool": {"name": (1, 128)},
    "Thinking": {"budget_tokens": (1024, INFINITY)},
    "EmbeddingsRequest": {"dimensions": (1, INFINITY)},
    "RerankRequest": {"top_n": (1, INFINITY)},
}
"""The lowest and highest value, or length, in the schemas of OpenAI, Anthropic, Cohere and, for its fields, vLLM."""
NARROWER = {
    "ChatRequest.n": "each answer is a sequence in an engine that organisations share",
    "CompletionRequest.n": "the same",
    "ChatRequest.messages": "a conversation of more is longer than any window",
    "MessagesRequest.messages": "the same",
}


def bounds(model: type[BaseModel]) -> Iterator[tuple[str, str, float, float]]:
    """Object, field, lowest and highest of each bounded field of `model` and of the objects in it."""
    schema = model.model_json_schema()
    for name, part in [(model.__name__, schema), *schema.get("$defs", {}).items()]:
        for field, value in part.get("properties", {}).items():
            for kind, form in forms(field, value):
                lows = [form[key] + step for key, step in LOWEST.items() if key in form]
                highs = [form[key] + step for key, step in HIGHEST.items() if key in form]
                if "{1,128}$" in form.get("pattern", ""):
                    lows, highs = [1], [128]
                if lows or highs:
                    yield name, kind, max(lows, default=-INFINITY), min(highs, default=INFINITY)


def forms(field: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield field, schema
    for form in schema.get("anyOf", ()):
        yield from forms(field, form)
    if "propertyNames" in schema:
        yield f"{field} keys", schema["propertyNames"]
        yield f"{field} values", schema["additionalProperties"]


def test_no_bound_is_narrower_than_in_the_schema_that_is_followed() -> None:
    unbounded = (-INFINITY, INFINITY)
    followed = {f"{name}.{field}": bound for name, fields in FOLLOWED.items() for field, bound in fields.items()}
    ours = {f"{name}.{field}": (low, high) for model in MODELS for name, field, low, high in bounds(model)}
    kept = {name: ours.get(name, unbounded) for name in followed}
    narrower = {name for name, (low, high) in followed.items() if kept[name][0] > low or kept[name][1] < high}
    assert narrower == {*NARROWER}


def test_editors_send_more_stop_strings_than_openai_takes() -> None:
    for count in (9, 14, 15, 16):
        stop = [f"\n{i}" for i in range(count)]
        for model, name, rest in (
            (ChatRequest, "stop", {"messages": [{"role": "user", "content": "x"}]}),
            (CompletionRequest, "stop", {"prompt": "x"}),
            (MessagesRequest, "stop_sequences", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}),
        ):
            assert getattr(model.model_validate({"model": "m", name: stop} | rest), name) == stop
