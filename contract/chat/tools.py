"""Tools and answer formats of a chat request, and the bounds of the JSON schemas that both carry. Spec 4.

A schema from a body is compiled to a grammar inside the engine, so what it may hold is bounded here: size, depth,
counts, and no regular expressions (a short one can take exponential time to compile).
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from contract.base import Lenient

MAX_SCHEMA_BYTES = 16 * 1024
MAX_SCHEMA_DEPTH = 16
"""Arrays and objects inside one another; an object in an object takes two."""
MAX_SCHEMA_COUNT = 10_000
"""Largest value of `maxLength`, `minItems` and their like."""
MAX_TOOLS = 128
MAX_DESCRIPTION_CHARS = 4096
NAME_PATTERN = r"^[a-zA-Z0-9_-]{1,64}$"

PATTERN_KEYWORDS = frozenset({"pattern", "patternProperties"})
COUNT_KEYWORDS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
NAMED_SCHEMAS = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose keys are names chosen by the client, so `pattern` is an ordinary word there."""
PLAIN_VALUES = frozenset({"enum", "const", "default", "examples", "required", "dependentRequired"})
"""Keywords whose values are data, not schemas."""


def bounded_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns `schema` if it keeps the bounds above, else raises ValueError. Whether it compiles, the engine says."""
    _check_depth(schema, MAX_SCHEMA_DEPTH)
    size = len(json.dumps(schema, allow_nan=False, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    if size > MAX_SCHEMA_BYTES:
        raise ValueError(f"the JSON schema has {size} bytes; at most {MAX_SCHEMA_BYTES} are allowed")
    _check_keywords(schema)
    return schema


def _check_depth(value: Any, left: int) -> None:
    if not isinstance(value, dict | list):
        return
    if not left:
        raise ValueError(f"the JSON schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")
    for child in value.values() if isinstance(value, dict) else value:
        _check_depth(child, left - 1)


def _check_keywords(schema: Any) -> None:
    if isinstance(schema, list):
        for child in schema:
            _check_keywords(child)
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key in PATTERN_KEYWORDS:
            raise ValueError(
                f"the JSON schema uses `{key}`; regular expressions are not supported, describe the form instead"
            )
        if key in COUNT_KEYWORDS and isinstance(value, int | float) and abs(value) > MAX_SCHEMA_COUNT:
            raise ValueError(f"the JSON schema has `{key}` {value}; at most {MAX_SCHEMA_COUNT} is allowed")
        if key == "$ref" and not (isinstance(value, str) and value.startswith("#")):
            raise ValueError(
                "the JSON schema has a `$ref` to another document; only `#...` inside the schema is followed"
            )
        if key in NAMED_SCHEMAS and isinstance(value, dict):
            _check_keywords(list(value.values()))
        elif key not in PLAIN_VALUES:
            _check_keywords(value)


Name = Annotated[str, Field(pattern=NAME_PATTERN)]
JsonSchema = Annotated[dict[str, Any], AfterValidator(bounded_schema)]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)]


class Function(Lenient):
    """What a tool is called and takes. Without `parameters` it takes none."""

    name: Name
    description: Description | None = None
    parameters: JsonSchema | None = None
    strict: bool | None = None


class Tool(Lenient):
    """A function that the model may ask the client to call."""

    type: Literal["function"]
    function: Function


class FunctionName(Lenient):
    """A function by name."""

    name: Name


class NamedTool(Lenient):
    """A `tool_choice` that forces one function."""

    type: Literal["function"]
    function: FunctionName


class AnswerSchema(Lenient):
    """The schema that the answer follows, under a name of the client's choice."""

    name: Name
    description: Description | None = None
    schema_: JsonSchema = Field({}, alias="schema")
    strict: bool | None = None


class ResponseFormat(Lenient):
    """Form of the answer: free text, any JSON object, or JSON that follows a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: AnswerSchema | None = None

    @model_validator(mode="after")
    def _schema_is_there(self) -> ResponseFormat:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("`response_format` of type `json_schema` needs the field `json_schema`")
        return self
