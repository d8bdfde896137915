"""What a body of POST /decisions may say: every bound at n - 1, n and n + 1."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from contract.body import parse
from contract.decisions.decision import check_body
from contract.decisions.native import DecisionRequest
from contract.errors import ApiError

CHOICE = {"type": "choice", "instructions": "Which?", "options": [{"id": "a"}, {"id": "b"}]}
SCORE = {"type": "score", "instructions": "How much?", "levels": ["low", "high"]}
BINARY = {"type": "binary", "instructions": "Is it?", "true_description": "it is", "false_description": "it is not"}
PNG = "data:image/png;base64,"


def body(**fields: Any) -> dict[str, Any]:
    """A valid body, changed by `fields`; None takes a field away."""
    whole = {"state": "a text", "questions": {"q": CHOICE}} | fields
    return {name: value for name, value in whole.items() if value is not None}


def read(**fields: Any) -> DecisionRequest:
    return parse(DecisionRequest, json.dumps(body(**fields)).encode())


def refusal(**fields: Any) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        read(**fields)
    return caught.value.fault.status, caught.value.fault.code


BAD = (400, "invalid_request_error")
LONG = (413, "request_too_large")


def options(count: int) -> dict[str, Any]:
    return CHOICE | {"options": [{"id": f"o{index}"} for index in range(count)]}


def levels(count: int) -> dict[str, Any]:
    return SCORE | {"levels": [f"l{index}" for index in range(count)]}


@pytest.mark.parametrize("count", [2, 3, 25, 26])
def test_options_within_bounds(count: int) -> None:
    request = read(questions={"q": options(count)})
    assert request.questions
    assert request.questions["q"].labels == tuple(f"o{index}" for index in range(count))


@pytest.mark.parametrize("count", [0, 1, 27])
def test_options_outside_bounds(count: int) -> None:
    assert refusal(questions={"q": options(count)}) == BAD


@pytest.mark.parametrize("count", [2, 9, 10])
def test_levels_within_bounds(count: int) -> None:
    assert read(questions={"q": levels(count)})


@pytest.mark.parametrize("count", [0, 1, 11])
def test_levels_outside_bounds(count: int) -> None:
    assert refusal(questions={"q": levels(count)}) == BAD


@pytest.mark.parametrize("count", [1, 15, 16])
def test_questions_within_bounds_keep_their_order(count: int) -> None:
    names = [f"q{index}" for index in reversed(range(count))]
    request = read(questions=dict.fromkeys(names, BINARY))
    assert request.questions
    assert list(request.questions) == names


@pytest.mark.parametrize("count", [0, 17])
def test_questions_outside_bounds(count: int) -> None:
    assert refusal(questions={f"q{index}": BINARY for index in range(count)}) == BAD


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        (lambda n: {"state": "x" * n}, 16_000),
        (lambda n: {"state": "ä" * n}, 16_000),
        (lambda n: {"state": {"k": "x" * (n - len('{"k": ""}'))}}, 16_000),
        (lambda n: {"state": None, "messages": [{"role": "user", "content": "x" * (n - 5)}, USER_OF_5]}, 16_000),
        (lambda n: {"questions": {"q": CHOICE | {"instructions": "x" * n}}}, 1000),
        (lambda n: {"questions": {"q": CHOICE | {"options": [{"id": "a", "description": "x" * n}, {"id": "b"}]}}}, 512),
        (lambda n: {"questions": {"q": SCORE | {"levels": ["x" * n, "y"]}}}, 512),
        (lambda n: {"questions": {"q": BINARY | {"true_description": "x" * n}}}, 512),
    ],
)
def test_characters(fields: Any, limit: int) -> None:
    assert read(**fields(limit - 1))
    assert read(**fields(limit))
    assert refusal(**fields(limit + 1)) == LONG


USER_OF_5 = {"role": "assistant", "content": "yes ?"}


def test_body_bytes() -> None:
    check_body(65_536, [])
    with pytest.raises(ApiError) as caught:
        check_body(65_537, [])
    assert caught.value.fault.status == 413


def test_body_bytes_do_not_count_the_data_of_images() -> None:
    data = base64.b64encode(b"x" * 90_000).decode()
    fields = body(images=[{"data_url": PNG + data}])
    addresses = read(**fields).decision().images
    check_body(len(data) + 65_536, addresses)
    with pytest.raises(ApiError):
        check_body(len(data) + 65_537, addresses)


@pytest.mark.parametrize(
    "fields",
    [
        {"state": None},
        {"messages": [{"role": "user", "content": "hi"}]},
        {"questions": None},
        {"preset": "ticket-routing-v1"},
        {"surprise": 1},
        {"State": "x"},
        {"state": ""},
        {"state": " \n"},
        {"state": 3},
        {"state": True},
        {"state": None, "messages": []},
        {"state": None, "messages": [{"role": "user", "content": ""}]},
        {"state": None, "messages": [{"role": "robot", "content": "x"}]},
        {"state": None, "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
        {"state": None, "messages": [{"role": "user", "content": "x", "name": "y"}]},
        {"questions": {"": CHOICE}},
        {"questions": [CHOICE]},
        {"questions": {"q": CHOICE | {"type": "rank"}}},
        {"questions": {"q": {"type": "choice"}}},
        {"questions": {"q": CHOICE | {"levels": ["a", "b"]}}},
        {"questions": {"q": CHOICE | {"options": ["a", "b"]}}},
        {"questions": {"q": CHOICE | {"options": [{"id": "a"}, {"id": "a"}]}}},
        {"questions": {"q": CHOICE | {"options": [{"id": ""}, {"id": "a"}]}}},
        {"questions": {"q": CHOICE | {"options": [{"id": "a", "weight": 1}, {"id": "b"}]}}},
        {"questions": {"q": SCORE | {"levels": ["a", "a"]}}},
        {"questions": {"q": {"type": "binary", "instructions": "Is it?"}}},
        {"questions": {"q": CHOICE | {"instructions": " "}}},
        {"policy": {"mode": "threshold"}},
        {"policy": {"mode": "review_only", "threshold": 0.5}},
        {"policy": {"mode": "threshold", "threshold": 1.0001}},
        {"policy": {"mode": "threshold", "threshold": -0.0001}},
        {"policy": {"mode": "threshold", "threshold": "0.5"}},
        {"policy": {"mode": "always"}},
        {"policy": "review_only"},
        {"request_id": 7},
        {"model": 7},
        {"images": [{"data_url": PNG + "AAAA"}] * 3},
        {"images": [{"data_url": "https://example.org/cat.png"}]},
        {"images": [{"data_url": "file:///etc/passwd"}]},
        {"images": [{"data_url": "data:text/html;base64,AAAA"}]},
        {"images": [{"data_url": PNG + "A"}]},
        {"images": [{"data_url": PNG + "AA AA"}]},
        {"images": [{"url": PNG + "AAAA"}]},
    ],
)
def test_bad_fields(fields: dict[str, Any]) -> None:
    assert refusal(**fields) == BAD


@pytest.mark.parametrize(("size", "status"), [(3_999_999, 200), (4_000_000, 200), (4_000_001, 413)])
def test_bytes_of_an_image(size: int, status: int) -> None:
    image = {"data_url": PNG + base64.b64encode(bytes(size)).decode()}
    if status == 200:
        assert read(images=[image, image])
    else:
        assert refusal(images=[image]) == LONG


@pytest.mark.parametrize("threshold", [0, 0.0, 0.5, 1, 1.0])
def test_threshold(threshold: float) -> None:
    assert read(policy={"mode": "threshold", "threshold": threshold}).policy.threshold == threshold


@pytest.mark.parametrize(
    "raw",
    [
        b'{"state": NaN, "preset": "p"}',
        b'{"state": [Infinity], "preset": "p"}',
        b'{"state": "\\ud800", "preset": "p"}',
        b'{"state": "\xed\xa0\x80", "preset": "p"}',
        b'{"state": "x", "state": "y", "preset": "p"}',
        b'{"state": "x", "questions": {"q": {"type": "score", "type": "score"}}}',
        b'{"state": ' + b"[" * 33 + b"]" * 33 + b', "preset": "p"}',
        b'{"state": ' + b"[" * 30_000 + b"]" * 30_000 + b', "preset": "p"}',
        b"",
        b"{",
    ],
)
def test_not_json(raw: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse(DecisionRequest, raw)
    assert (caught.value.fault.status, caught.value.fault.code) == (400, "invalid_json")


def test_the_text_that_is_judged() -> None:
    assert read(state="as it is\n").decision().state == "as it is\n"
    assert read(state={"b": 1, "a": "ä"}).decision().state == '{"b": 1, "a": "ä"}'
    assert read(state=[]).decision().state == "[]"
    turns = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello!"}]
    assert read(state=None, messages=turns).decision().state == "user: Hi.\n\nassistant: Hello!"
