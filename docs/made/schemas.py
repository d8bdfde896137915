"""A JSON schema in words: what a field takes, its bounds, its default."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

from deployments.ingress.wire.openapi import plain

Schema = dict[str, Any]

RANGES = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " entries"),
)
"""Keywords of the least and the most, and what is counted."""
LARGE = 2**53
"""Bounds beyond this are those of a machine's integers, and say nothing to a reader."""


def words(schema: Schema, *, nulls: bool = False) -> str:
    """What a value may be, e.g. "list of [`Message`](#message); 1 to 2,048 entries".

    Without `nulls` null is left out where it means that nothing was sent.
    """
    kinds = dict.fromkeys(_kinds(schema))
    together = " and " if "allOf" in schema else " or "
    return together.join(kind for kind in kinds if nulls or kind != "null") or next(iter(kinds), "anything")


def default(schema: Schema) -> str:
    """The default as JSON, nothing where there is none, or where it is null: then the field is simply not there."""
    value = schema.get("default")
    return "" if value is None else f"`{json.dumps(value)}`"


def named(schema: Any) -> Iterator[str]:
    """Names of the types that `schema` refers to, in order."""
    if isinstance(schema, dict):
        if isinstance(reference := schema.get("$ref"), str):
            yield name_of(reference)
        for child in schema.values():
            yield from named(child)
    elif isinstance(schema, list):
        for child in schema:
            yield from named(child)


def name_of(reference: str) -> str:
    """The type behind `#/components/schemas/NAME`."""
    return reference.rpartition("/")[2]


def link(name: str) -> str:
    """The name of a type, leading to its table."""
    return f"[`{name}`](#{name.lower()})"


def about(schema: Schema) -> str:
    """The first paragraph of the type's docstring."""
    first, _, _ = inspect.cleandoc(schema.get("description", "")).partition("\n\n")
    return cell(plain(first))


def cell(text: str) -> str:
    """`text`, fit for a cell of a table."""
    return text.replace("|", "\\|")


def _kinds(schema: Schema) -> Iterator[str]:
    if "$ref" in schema:
        yield link(name_of(schema["$ref"]))
        return
    for alternative in ("anyOf", "oneOf", "allOf"):
        for child in schema.get(alternative, ()):
            yield from _kinds(child)
    if "const" in schema:
        yield f"`{json.dumps(schema['const'])}`"
    elif "enum" in schema:
        yield ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    elif kind := schema.get("type"):
        yield "; ".join([_kind(kind, schema), *_bounds(schema)])


def _kind(kind: str, schema: Schema) -> str:
    if kind == "array":
        members = schema.get("prefixItems") or [schema.get("items", {})]
        return f"list of {' and '.join(_member(member) for member in members)}" if any(members) else "list"
    if kind == "object" and isinstance(values := schema.get("additionalProperties"), dict):
        return f"object of {_member(values)}"
    if kind == "object" and (fields := schema.get("properties")):
        return " and ".join(f"`{name}`, a {words(value)}" for name, value in fields.items())
    return "file" if schema.get("format") == "binary" else kind


def _member(schema: Schema) -> str:
    """What each of many is, in brackets where that is a choice."""
    description = words(schema)
    return f"({description})" if " or " in description else description


def _bounds(schema: Schema) -> Iterator[str]:
    if above := _number(schema.get("exclusiveMinimum")):
        yield f"above {above}"
    for low, high, counted in RANGES:
        least, most = _number(schema.get(low)), _number(schema.get(high))
        if least and most:
            yield (f"{least} to {most}" if least != most else least) + counted
        elif least == "1" and counted:
            yield "not empty"
        elif least or most:
            yield f"at least {least}{counted}" if least else f"at most {most}{counted}"
    if below := _number(schema.get("exclusiveMaximum")):
        yield f"below {below}"
    if pattern := schema.get("pattern"):
        yield f"matches `{pattern}`".replace("|", "\\|")


def _number(bound: float | None) -> str:
    """A bound as text; empty where there is none that a reader would miss."""
    if bound is None or abs(bound) >= LARGE:
        return ""
    return f"{bound:,g}" if isinstance(bound, float) else f"{bound:,}"
