"""What a body of POST /decisions may say: every bound at n - 1, n and n + 1."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from contract.body import parse
from contract.decisions.decision import check_body
from contract.decisions.native import DecisionRequest
from contract.errors import INVALID_JSON, REQUEST_TOO_LARGE
from tests.contract.bodies import read, refusal

CHOICE = {"type": "choice", "instructions": "Which?", "options": [{"id": "a"}, {"id": "b"}]}
SCORE = {"type": "score", "instructions": "How much?", "levels": ["low", "high"]}
BINARY = {"type": "binary", "instructions": "Is it?", "true_description": "it is", "false_description": "it is not"}
PNG = "data:image/png;base64,"


def body(**fields: Any) -> dict[str, Any]:
    """A valid body, changed by `fields`; None takes a field away."""
    whole = {"state": "a text", "questions": {"q": CHOICE}} | fields
    return {name: value for name, value in whole.items() if value is not None}


def decision(**fields: Any) -> DecisionRequest:
    return read(DecisionRequest, body(**fields))


def options(count: int) -> dict[str, Any]:
    return {"q": CHOICE | {"options": [{"id": f"o{index}"} for index in range(count)]}}


def levels(count: int) -> dict[str, Any]:
    return {"q": SCORE | {"levels": [f"l{index}" for index in range(count)]}}


def binaries(count: int) -> dict[str, Any]:
    return {f"q{index}": BINARY for index in reversed(range(count))}


@pytest.mark.parametrize(("questions", "low", "high"), [(options, 2, 26), (levels, 2, 10), (binaries, 1, 16)])
def test_options_levels_and_questions_are_counted(questions: Any, low: int, high: int) -> None:
    for count in (low, low + 1, high - 1, high):
        assert decision(questions=questions(count)).questions
    for count in (0, low - 1, high + 1):
        refusal(decision, questions=questions(count))


def test_questions_and_options_keep_their_order() -> None:
    assert list(decision(questions=binaries(16)).questions or ()) == [f"q{index}" for index in range(15, -1, -1)]
    assert (decision(questions=options(26)).questions or {})["q"].labels == tuple(f"o{index}" for index in range(26))


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
    assert decision(**fields(limit - 1))
    assert decision(**fields(limit))
    refusal(decision, fault=REQUEST_TOO_LARGE, **fields(limit + 1))


USER_OF_5 = {"role": "assistant", "content": "yes ?"}


def test_body_bytes() -> None:
    check_body(65_536, [])
    refusal(check_body, 65_537, [], fault=REQUEST_TOO_LARGE)


def test_body_bytes_do_not_count_the_data_of_images() -> None:
    data = base64.b64encode(b"x" * 90_000).decode()
    fields = body(images=[{"data_url": PNG + data}])
    addresses = decision(**fields).decision().images
    check_body(len(data) + 65_536, addresses)
    refusal(check_body, len(data) + 65_537, addresses, fault=REQUEST_TOO_LARGE)


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
    refusal(decision, **fields)


@pytest.mark.parametrize(("size", "taken"), [(3_999_999, True), (4_000_000, True), (4_000_001, False)])
def test_bytes_of_an_image(size: int, taken: bool) -> None:
    image = {"data_url": PNG + base64.b64encode(bytes(size)).decode()}
    if taken:
        assert decision(images=[image, image])
    else:
        refusal(decision, fault=REQUEST_TOO_LARGE, images=[image])


@pytest.mark.parametrize("threshold", [0, 0.0, 0.5, 1, 1.0])
def test_threshold(threshold: float) -> None:
    assert decision(policy={"mode": "threshold", "threshold": threshold}).policy.threshold == threshold


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
    refusal(parse, DecisionRequest, raw, fault=INVALID_JSON)


def test_the_text_that_is_judged() -> None:
    assert decision(state="as it is\n").decision().state == "as it is\n"
    assert decision(state={"b": 1, "a": "ä"}).decision().state == '{"b": 1, "a": "ä"}'
    assert decision(state=[]).decision().state == "[]"
    turns = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello!"}]
    assert decision(state=None, messages=turns).decision().state == "user: Hi.\n\nassistant: Hello!"
