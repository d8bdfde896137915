"""The evaluation of chat counts what a reader would count."""

from __future__ import annotations

import json
import math
import tomllib
from typing import Any

import pytest

from benchmarks.quality import chat

EXAMPLES = tomllib.loads(chat.FILE.read_text("utf-8"))


def test_there_are_as_many_examples_as_the_page_says() -> None:
    assert [len(EXAMPLES[key]) for key in ("questions", "objects")] == [30, 20]
    assert len(EXAMPLES["calls"]["of"]) == 20
    assert {row["tool"] for row in EXAMPLES["calls"]["of"]} == set(EXAMPLES["tools"])


@pytest.mark.parametrize(
    ("name", "arguments", "is_right"),
    [
        ("weather", {"city": "Oslo"}, True),
        ("weather", {"city": "oslo, Norway"}, True),
        ("weather", {"city": "Bergen"}, False),
        ("weather", {}, False),
        ("timer", {"city": "Oslo"}, False),
    ],
)
def test_a_call_is_right_with_its_tool_and_its_arguments(name: str, arguments: dict[str, Any], is_right: bool) -> None:
    row = {"tool": "weather", "arguments": {"city": "Oslo"}}
    assert chat.is_call({"name": name, "arguments": json.dumps(arguments)}, row) is is_right


def test_a_number_must_be_the_number() -> None:
    row = {"tool": "timer", "arguments": {"minutes": 5}}
    assert chat.is_call({"name": "timer", "arguments": '{"minutes": 5}'}, row)
    assert not chat.is_call({"name": "timer", "arguments": '{"minutes": 50}'}, row)


def test_a_schema_asks_for_all_fields_and_no_others() -> None:
    made = chat.schema({"name": "string", "mood": ["good", "bad"], "guests": ["string"]})
    assert made["required"] == ["name", "mood", "guests"]
    assert made["additionalProperties"] is False
    assert made["properties"]["mood"] == {"enum": ["good", "bad"]}
    assert made["properties"]["guests"]["items"]["type"] == "string"


def test_perplexity_is_compared_token_by_token() -> None:
    first = [-1.0, -2.0, -3.0, -4.0]
    assert chat.against(first, first) == "+0.00% ± 0.00%"
    assert chat.against([figure - math.log(1.1) for figure in first], first) == "+10.00% ± 0.00%"


def test_texts_are_prose_of_others() -> None:
    texts = chat.texts()
    assert len(texts) > 50
    assert all(chat.SHORTEST <= len(text) <= chat.LONGEST for text in texts)
    assert not any("parlance" in text.lower() for text in texts)
