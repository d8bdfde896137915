"""Structural tags that stand for the JSON schemas of requests. No engine is needed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from models.llm.grammars import Refused

GAP_CHARS = 16
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
CALL = {
    "type": "triggered_tags",
    "triggers": ["<call>"],
    "tags": [{"begin": "<call>", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": "</call>"}],
}


def tag_of(kind: str, spec: Any) -> str:
    from vllm.v1.structured_output.backend_types import StructuredOutputOptions

    from models.chat.structures import with_short_gaps

    return with_short_gaps(StructuredOutputOptions[kind], json.dumps(spec))


def allows(tag: str, text: str) -> bool:
    import xgrammar

    vocabulary = xgrammar.TokenizerInfo([chr(code) for code in range(128)])
    compiled = xgrammar.GrammarCompiler(vocabulary, max_threads=1).compile_structural_tag(tag)
    matcher = xgrammar.GrammarMatcher(compiled, terminate_without_stop_token=True)
    return matcher.accept_string(text) and matcher.is_completed()


@pytest.mark.parametrize(("spaces", "allowed"), [(GAP_CHARS - 1, True), (GAP_CHARS, True), (GAP_CHARS + 1, False)])
@pytest.mark.parametrize(
    ("kind", "spec", "text"),
    [
        ("JSON", SCHEMA, '{{"a":{}1}}'),
        ("JSON_OBJECT", {}, '{{{}"b": [1]}}'),
        ("STRUCTURAL_TAG", {"type": "structural_tag", "format": CALL}, '<call>{{"a":{}1}}</call>'),
    ],
)
def test_a_gap_has_an_end(kind: str, spec: Any, text: str, spaces: int, allowed: bool) -> None:
    tag = tag_of(kind, spec)
    assert allows(tag, text.format(" " * spaces)) is allowed
    assert allows(tag, text.format("\n" * spaces)) is allowed


def test_a_client_that_names_its_property_json_schema_gets_its_own() -> None:
    schema = {"type": "object", "properties": {"json_schema": {"type": "integer"}}, "required": ["json_schema"]}
    tag = tag_of("JSON", schema)
    assert json.loads(tag)["format"]["json_schema"] == schema
    assert allows(tag, '{"json_schema": 3}')


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "multipleOf": 5},
        {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}},
        {"allOf": [{"type": "string"}, {"enum": ["yes", "no"]}]},
    ],
)
def test_a_keyword_that_would_be_ignored_is_refused(schema: Any) -> None:
    with pytest.raises(Refused, match="keyword"):
        tag_of("JSON", schema)
