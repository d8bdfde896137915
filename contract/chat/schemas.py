"""JSON schemas that an answer must follow, and the cost of compiling them.

Only such schemas are compiled to a grammar, and only they are bounded here. The schema of a tool that the model is free
to call is text in the prompt: only the bounds of a body apply to it.

The bound is an estimate, which keeps obvious bombs away from the engines. Schemas that pass are compiled under limits
of time and memory in `models.llm.grammars`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from pydantic import Field, field_validator, model_validator

from contract.base import Items, Lenient, needs
from contract.chat.tools import ANNOTATIONS, Name
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
    """Schema that the answer follows, under a name that the client chooses."""

    name: Name
    description: str | None = None
    schema_: dict[str, Any] = Field({}, alias="schema")
    strict: bool | None = None


class ResponseFormat(Lenient):
    """Form of the answer: free text, any JSON object, or JSON that follows a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: AnswerSchema | None = None

    _schema_is_there = needs(
        "json_schema", "json_schema", fault="`response_format` of type `json_schema` needs the field `json_schema`"
    )


ALTERNATIVES = {
    "json": "put a JSON schema into `response_format`",
    "json_object": "request any JSON object with `response_format`",
    "grammar": "a grammar is not supported, because there is no bound on the cost of its tokens",
    "structural_tag": "a structural tag is not supported; declare tools in `tools`",
}
"""Forms of vLLM's API that are refused, and the advice for each."""


class StructuredOutputs(Lenient):
    """Form of an answer that is plain text: exactly one of a regular expression and a list of allowed answers."""

    regex: Annotated[str, Field(min_length=1, max_length=MAX_REGEX_CHARS)] | None = None
    choice: Annotated[list[Annotated[str, Field(min_length=1)]], Items(MAX_ALLOWED_ANSWERS, least=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_offered(cls, value: Any) -> Any:
        for name, instead in ALTERNATIVES.items():
            if isinstance(value, dict) and value.get(name) is not None:
                raise ValueError(f"`structured_outputs` supports `regex` and `choice`; {instead}")
        return value

    @field_validator("regex")
    @classmethod
    def _repeats_within_bounds(cls, regex: str | None) -> str | None:
        for counts in REPETITION.findall(regex or ""):
            if any(int(count) > MAX_REPETITIONS for count in counts if count):
                raise ValueError(f"a regular expression may repeat a part at most {MAX_REPETITIONS} times")
        return regex

    @field_validator("choice")
    @classmethod
    def _is_short(cls, choice: list[str] | None) -> list[str] | None:
        if sum(map(len, choice or ())) > MAX_ALLOWED_ANSWERS_CHARS:
            raise ValueError(f"the answers together may have at most {MAX_ALLOWED_ANSWERS_CHARS} characters")
        return choice

    @model_validator(mode="after")
    def _is_one(self) -> StructuredOutputs:
        if (self.regex is None) == (self.choice is None):
            raise ValueError("`structured_outputs` needs exactly one of `regex` and `choice`")
        return self


MAX_SCHEMA_COST = 4096
"""States of the grammars of all compiled schemas of a request together; see `cost`."""
REPEATED_STATES = 256
"""States of a longer repetition: no more are compiled."""
CHARS_PER_STATE = 64
"""Characters of names and values that count as one state. They compile in less than a millisecond, and a state of a
bounded string takes milliseconds."""

COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords with an object of names that the client chooses."""
DATA = frozenset({"enum", "const", "required", "dependentRequired"})
"""Keywords with data as their value, not schemas."""
IN_PLACE = ("allOf[", "anyOf[", "oneOf[")
"""Prefixes of paths in a schema that lead to schemas of the same value."""
DEFINITIONS = ("$defs", "definitions")
Bounds = frozenset[tuple[str, float]]
"""Counts of one schema, by keyword."""


def check(schemas: Mapping[str, dict[str, Any]]) -> None:
    """Checks the compiled schemas of a request, by the field that holds each.

    Raises INVALID_REQUEST for an invalid reference, and for schemas that cost too much together.
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


def cost(schema: dict[str, Any]) -> int:
    """Estimates the states of the grammar of `schema`. A definition counts once for any number of references.

    Raises ValueError for a `$ref` to anything but a definition of the same schema: other places may hold no schema, and
    are not counted.
    """
    targets = {"#", *_definitions(schema)}
    repetitions: set[Bounds] = set()
    chars = 0
    places: list[tuple[str, Any]] = [("", schema)]
    while places:
        place, part = places.pop()
        if not isinstance(part, dict):
            chars += _size(part)
            continue
        if bounds := frozenset((key, abs(n)) for key in COUNTS if isinstance(n := part.get(key), int | float)):
            repetitions.add(bounds)
        if "$ref" in part and _target(part["$ref"]) not in targets:
            raise ValueError(
                f"has a `$ref` to `{str(part['$ref'])[:64]}` at `{place}`; only `#` and its own definitions, "
                "`#/$defs/NAME` and `#/definitions/NAME`, are followed"
            )
        for key, value in part.items():
            chars += len(key)
            if key in DATA or not (key in ANNOTATIONS or isinstance(value, dict | list)):
                chars += _size(value)
            elif key in NAMED_SCHEMAS and isinstance(value, dict):
                chars += sum(map(len, value))
        places += parts(part, place)
    states = (max(count for _, count in bounds) for bounds in repetitions)
    return sum(int(min(count, REPEATED_STATES)) for count in states) + chars // CHARS_PER_STATE


def parts(schema: dict[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the path and value of each schema directly inside `schema`, which is at `place` itself."""
    for key, value in schema.items():
        at = f"{place}.{key}" if place else key
        if key in NAMED_SCHEMAS and isinstance(value, dict):
            yield from ((f"{at}.{name}", part) for name, part in value.items())
        elif key not in DATA | ANNOTATIONS and isinstance(value, dict | list):
            yield from (
                [(at, value)] if isinstance(value, dict) else ((f"{at}[{i}]", part) for i, part in enumerate(value))
            )


def resolvable(schema: Any) -> Any:
    """Returns a copy of `schema` for a compiler of grammars, which looks up the names in a `$ref` without decoding.

    A `$ref` is a JSON pointer in a URI: percent signs are decoded, and definitions get the escaped names of pointers.
    """
    if isinstance(schema, dict):
        return {key: _resolvable(key, value) for key, value in schema.items()}
    return list(map(resolvable, schema)) if isinstance(schema, list) else schema


def _resolvable(key: str, value: Any) -> Any:
    if key == "$ref":
        return _target(value)
    if key in NAMED_SCHEMAS and isinstance(value, dict):
        name_of = _escaped if key in DEFINITIONS else str
        return {name_of(name): resolvable(part) for name, part in value.items()}
    return value if key in DATA | ANNOTATIONS else resolvable(value)


def _definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the definitions of `schema`, by the pointer to each."""
    groups = ((group, named) for group in DEFINITIONS if isinstance(named := schema.get(group), dict))
    return {f"#/{group}/{_escaped(name)}": part for group, named in groups for name, part in named.items()}


def _escaped(name: str) -> str:
    """Returns `name` as a step of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def _target(reference: Any) -> str:
    return unquote(str(reference))


def _refuse_loops(schema: dict[str, Any]) -> None:
    """Raises ValueError for a `$ref` that leads back to itself without a step into the value: no text matches it."""
    leads_to = {target: set(_in_place(part)) for target, part in {"#": schema, **_definitions(schema)}.items()}
    try:
        TopologicalSorter(leads_to).prepare()
    except CycleError as loop:
        raise ValueError(f"has a `$ref` to `{loop.args[1][0][:64]}` that leads back to itself") from None


def _in_place(schema: Any) -> Iterator[str]:
    """Yields the targets of those references in `schema` that describe the same value as `schema` itself."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield _target(schema["$ref"])
        for place, part in parts(schema):
            if place.startswith(IN_PLACE):
                yield from _in_place(part)


def _size(value: Any) -> int:
    """Returns the characters of a value that is data."""
    if isinstance(value, dict):
        return sum(len(key) + _size(part) for key, part in value.items())
    if isinstance(value, list):
        return sum(map(_size, value))
    return len(value) if isinstance(value, str) else 4
