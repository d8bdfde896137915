"""Structural tags that stand for the JSON schemas of requests, and the search for the place of a refused keyword.

No engine is needed. The search is cheap for any schema that a client may send.
"""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from contract.chat import schemas
from contract.chat.engine import ChatJob
from models.llm.grammars import Grammars, Refused

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


def test_a_gap_has_an_end() -> None:
    for kind, spec, text in (
        ("JSON", SCHEMA, '{{"a":{}1}}'),
        ("JSON_OBJECT", {}, '{{{}"b": [1]}}'),
        ("STRUCTURAL_TAG", {"type": "structural_tag", "format": CALL}, '<call>{{"a":{}1}}</call>'),
    ):
        tag = tag_of(kind, spec)
        for spaces, allowed in ((GAP_CHARS - 1, True), (GAP_CHARS, True), (GAP_CHARS + 1, False)):
            assert allows(tag, text.format(" " * spaces)) is allows(tag, text.format("\n" * spaces)) is allowed, kind


def test_a_client_that_names_its_property_json_schema_gets_its_own() -> None:
    schema = {"type": "object", "properties": {"json_schema": {"type": "integer"}}, "required": ["json_schema"]}
    tag = tag_of("JSON", schema)
    assert json.loads(tag)["format"]["json_schema"] == schema
    assert allows(tag, '{"json_schema": 3}')


def test_a_keyword_that_would_be_ignored_is_refused() -> None:
    for schema in (
        {"type": "integer", "multipleOf": 5},
        {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}},
        {"allOf": [{"type": "string"}, {"enum": ["yes", "no"]}]},
    ):
        with pytest.raises(Refused, match="keyword"):
            tag_of("JSON", schema)


WIDE = {f"note{number}": 1 for number in range(6000)}
MANY = {f"p{number}": {"type": "string"} for number in range(3000)}
FEW = dict([*MANY.items()][:1000])


class _Grammars:
    def __init__(self) -> None:
        self.checked: list[int] = []

    async def first_refused(self, _kind: str, specs: list[str], _owner: str) -> int | None:
        self.checked += map(len, specs)
        return next((index for index, spec in enumerate(specs) if '"bad"' in spec), None)


UNIQUE = {"type": "array", "uniqueItems": True}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("keyword", WIDE | {"type": "number", "multipleOf": 2}, "multipleOf"),
    ("keyword", {"properties": MANY | {"n": {"type": "number", "multipleOf": 2}}}, "properties.n.multipleOf"),
    ("keyword", {"anyOf": [{"allOf": [{}, {}]}, {"type": "array", "contains": {}}]}, "anyOf[0].allOf"),
    ("keyword", {"properties": {"a": {"items": [UNIQUE]}}}, "properties.a.items[0].uniqueItems"),
    ("invalid", {"properties": {"a": {"anyOf": [{}, {"type": "bad"}]}}}, "properties.a.anyOf[1].type"),
    ("invalid", WIDE | {"type": "bad"}, "type"),
    ("invalid", {"properties": MANY | {"a": {"items": {"type": "bad"}}}}, "properties.a.items.type"),
    ("invalid", {"$defs": FEW, "properties": FEW | {"a": {"type": "bad"}}}, "properties.a.type"),
    ("invalid", {"properties": {"a": 3, "b": True}, "format": "bad"}, "format"),
]
"""Reasons of a refusal, the schema, and the place of the keyword that is refused."""


async def test_the_place_is_found_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    from models.chat import errors

    check = errors.has_xgrammar_unsupported_json_features
    for reason, schema, place in REFUSED:
        schemas.check({"response_format": schema})
        grammars = _Grammars()

        def counted(part: dict[str, Any], grammars: _Grammars = grammars) -> bool:
            grammars.checked.append(len(part))
            return bool(check(part))

        monkeypatch.setattr(errors, "has_xgrammar_unsupported_json_features", counted)
        assert await errors.refused_place(Refused(reason), schema, "org-1", cast(Grammars, grammars)) == place
        assert len(grammars.checked) <= 40, place
        assert reason == "keyword" or sum(grammars.checked) <= 16 * len(json.dumps(schema)), place


async def test_of_several_schemas_the_one_that_is_refused_is_named() -> None:
    from models.chat import errors

    fields = {"response_format": SCHEMA, "tools[0].parameters": {"type": "bad"}, "tools[1].parameters": SCHEMA}
    request = SimpleNamespace(compiled_schemas=lambda: fields, structured_outputs=None)
    job = cast(ChatJob, SimpleNamespace(request=request, owner="org-1"))
    assert await errors.refused_field(Refused("invalid"), job, cast(Grammars, _Grammars())) == "tools[0].parameters"


async def test_the_search_ends_with_its_characters() -> None:
    from models.chat import errors

    schema = {"$defs": {"d": {"enum": ["x" * 200_000]}}, "properties": FEW | {"z": {"type": "bad"}}}
    schemas.check({"response_format": schema})
    grammars = _Grammars()
    assert await errors.refused_place(Refused("invalid"), schema, "org-1", cast(Grammars, grammars)) == ""
    assert sum(grammars.checked) <= errors.PLACE_CHARS
