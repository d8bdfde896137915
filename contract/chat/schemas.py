"""JSON schemas that an answer is made to follow, and what following one costs.

Only such schemas are compiled to a grammar, and only they are bounded. The schema of a tool that the model may call or
leave is text in the prompt: the bounds of a body hold for it, and nothing else.

The bound here is an estimate, so that a clear bomb never reaches an engine. What it lets through is compiled under a
limit of time and memory in `models.llm.grammars`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from contract.base import Items, Lenient
from contract.chat.tools import Name
from contract.errors import INVALID_REQUEST

MAX_REGEX_CHARS = 2048
MAX_REPETITIONS = 1000
"""Repetitions of one piece of a regular expression."""
MAX_ALLOWED_ANSWERS = 256
"""Entries of `structured_outputs.choice`."""
MAX_ALLOWED_ANSWERS_CHARS = 8192
"""Characters of all of them together."""

REPETITION = re.compile(r"(?<!\\)\{\s*(\d*)\s*(?:,\s*(\d*)\s*)?\}")
"""A repetition within bounds, `{2}` or `{2,5}`."""


class AnswerSchema(Lenient):
    """The schema that the answer follows, under a name of the client's choice."""

    name: Name
    description: str | None = None
    schema_: dict[str, Any] = Field({}, alias="schema")
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


ELSEWHERE = {
    "json": "a JSON schema belongs in `response_format`",
    "json_object": "any JSON object is asked for with `response_format`",
    "grammar": "a grammar is not followed: no bound is known for what a token of it costs",
    "structural_tag": "a structural tag is not followed: tools are declared in `tools`",
}
"""Forms of vLLM's that are refused, and what to do instead."""


class StructuredOutputs(Lenient):
    """Text that the answer is: one that a regular expression matches, or one of several. One of the two is given."""

    regex: Annotated[str, Field(min_length=1, max_length=MAX_REGEX_CHARS)] | None = None
    choice: Annotated[list[Annotated[str, Field(min_length=1)]], Items(MAX_ALLOWED_ANSWERS, least=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_offered(cls, value: Any) -> Any:
        for name, instead in ELSEWHERE.items():
            if isinstance(value, dict) and value.get(name) is not None:
                raise ValueError(f"`structured_outputs` takes `regex` or `choice`; {instead}")
        return value

    @field_validator("regex")
    @classmethod
    def _repeats_within_bounds(cls, regex: str | None) -> str | None:
        for counts in REPETITION.findall(regex or ""):
            if any(int(count) > MAX_REPETITIONS for count in counts if count):
                raise ValueError(f"a regular expression may repeat a piece at most {MAX_REPETITIONS} times")
        return regex

    @field_validator("choice")
    @classmethod
    def _is_short(cls, choice: list[str] | None) -> list[str] | None:
        if sum(map(len, choice or ())) > MAX_ALLOWED_ANSWERS_CHARS:
            raise ValueError(f"the answers together have at most {MAX_ALLOWED_ANSWERS_CHARS} characters")
        return choice

    @model_validator(mode="after")
    def _is_one(self) -> StructuredOutputs:
        if (self.regex is None) == (self.choice is None):
            raise ValueError("`structured_outputs` takes one of `regex` and `choice`")
        return self


MAX_SCHEMA_COST = 4096
"""States of the grammars of all compiled schemas of a request together; see `cost`."""
REPEATED_STATES = 256
"""A longer repetition is compiled to so many states, and no more."""
CHARS_PER_STATE = 64
"""A state of a bounded string takes milliseconds, and 64 characters of names and values take less than one."""

COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose keys are names chosen by the client."""
ANNOTATIONS = frozenset({"default", "examples", "description", "title", "$comment"})
"""Keywords that no grammar is made of."""
DATA = frozenset({"enum", "const", "required", "dependentRequired"})
"""Keywords whose values are data, not schemas."""
IN_PLACE = ("allOf", "anyOf", "oneOf")
"""Keywords whose schemas hold for the same value as the schema that they stand in."""
Bounds = frozenset[tuple[str, float]]
"""The counts of one schema, by keyword."""
REFERENCE = re.compile(r"#(/(\$defs|definitions)/[^/]+)?")
"""Where a `$ref` may point. A path to anywhere else could name a value that is no schema and was not looked at."""


def check(schemas: Mapping[str, dict[str, Any]]) -> None:
    """Checks the compiled schemas of a request, by the field that each stands in.

    Raises INVALID_REQUEST for a reference that leads nowhere, and for schemas that are too dear together.
    """
    total = 0
    for param, schema in schemas.items():
        try:
            total += cost(schema)
            _refuse_loops(schema)
        except ValueError as error:
            raise INVALID_REQUEST(f"the JSON schema in `{param}` {error}", param=param) from None
        if total > MAX_SCHEMA_COST:
            raise INVALID_REQUEST(
                f"the JSON schemas up to `{param}` cost {total} states of a grammar; at most {MAX_SCHEMA_COST} are "
                f"allowed. Different bounds of lengths and counts cost up to {REPEATED_STATES} each, and an equal one "
                "costs nothing; names and values cost little",
                param=param,
            )


def dearest(schemas: Mapping[str, dict[str, Any]]) -> str:
    """The field of the schema that costs most. There is at least one."""
    return max(schemas, key=lambda param: cost(schemas[param]))


def cost(schema: dict[str, Any]) -> int:
    """States of the grammar of `schema`, roughly. A definition counts once, however often it is referred to.

    Raises ValueError for a `$ref` to anything but a definition of the same schema.
    """
    repetitions: set[Bounds] = set()
    chars = _walk(schema, repetitions)
    states = (max(count for _, count in bounds) for bounds in repetitions)
    return sum(int(min(count, REPEATED_STATES)) for count in states) + chars // CHARS_PER_STATE


def _walk(schema: Any, repetitions: set[Bounds]) -> int:
    """Characters of names and values in `schema`; bounds of its repetitions are added to `repetitions`."""
    if isinstance(schema, list):
        return sum(_walk(part, repetitions) for part in schema)
    if not isinstance(schema, dict):
        return _size(schema)
    bounds = frozenset((name, abs(value)) for name in COUNTS if isinstance(value := schema.get(name), int | float))
    if bounds:
        repetitions.add(bounds)
    chars = 0
    for key, value in schema.items():
        chars += len(key)
        if key == "$ref" and not (isinstance(value, str) and REFERENCE.fullmatch(value)):
            raise ValueError(
                f"has a `$ref` to `{str(value)[:64]}`; only `#/$defs/NAME`, `#/definitions/NAME` and `#` are followed"
            )
        if key in NAMED_SCHEMAS and isinstance(value, dict):
            chars += sum(len(name) + _walk(part, repetitions) for name, part in value.items())
        elif key in DATA:
            chars += _size(value)
        elif key not in ANNOTATIONS:
            chars += _walk(value, repetitions)
    return chars


def _refuse_loops(schema: dict[str, Any]) -> None:
    """Raises ValueError for a `$ref` that comes back without a step into the value: no text can follow that."""
    leads_to = {"#": set(_in_place(schema))}
    for group in ("$defs", "definitions"):
        parts = schema.get(group)
        for name, part in parts.items() if isinstance(parts, dict) else ():
            leads_to[f"#/{group}/{name}"] = set(_in_place(part))
    try:
        TopologicalSorter(leads_to).prepare()
    except CycleError as loop:
        raise ValueError(f"has a `$ref` to `{loop.args[1][0][:64]}` that leads back to itself") from None


def _in_place(schema: Any) -> Iterator[str]:
    """Where the references of `schema` point that are about the very value it describes."""
    if not isinstance(schema, dict):
        return
    if isinstance(to := schema.get("$ref"), str):
        yield to
    for keyword in IN_PLACE:
        parts = schema.get(keyword)
        for part in parts if isinstance(parts, list) else ():
            yield from _in_place(part)


def _size(value: Any) -> int:
    """Characters of a value that is data."""
    if isinstance(value, dict):
        return sum(len(key) + _size(part) for key, part in value.items())
    if isinstance(value, list):
        return sum(map(_size, value))
    return len(value) if isinstance(value, str) else 4
