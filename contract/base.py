"""Base types of the contract, each with its strictness towards input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from contract.errors import INVALID_REQUEST


@dataclass(frozen=True, slots=True)
class Items:
    """Bounds on the items of a list, or the members of an object: `Annotated[list[Part], Items(256)]`.

    The first wrong item ends the reading. Pydantic would otherwise collect an error for each, and a body of wrong
    items alone would block the event loop for half a second.
    """

    most: int
    least: int = 0

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Returns the schema of the list, bounded."""
        schema: Any = handler(source)
        if schema["type"] not in ("list", "dict"):
            raise TypeError(f"`Items` belongs on the list itself, inside of what is optional or converted: {source}")
        least = {"min_length": self.least} if self.least else {}
        bounded: CoreSchema = schema | least | {"max_length": self.most, "fail_fast": True}
        return bounded


def from_text(made_of: Callable[[str], Any], forms: Any) -> WrapValidator:
    """Returns a validator that replaces a text by what `made_of` makes of it; `forms` are all types that it takes."""

    def read(value: Any, handler: Callable[[Any], Any]) -> Any:
        try:
            return handler(made_of(value) if isinstance(value, str) else value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            if first["loc"] or first["type"] not in ("list_type", "model_type"):
                raise
            # `contract.body` writes the sentence: of what is no text either, pydantic would name the other form only.
            raise PydanticCustomError(f"string_or_{first['type']}", "") from None

    return WrapValidator(read, json_schema_input_type=forms)


def needs(kind: str, *fields: str, fault: str) -> Any:
    """Returns a validator of a model that raises ValueError if one of the type `kind` lacks one of `fields`."""

    def check(part: Any) -> Any:
        if part.type == kind and any(getattr(part, name) is None for name in fields):
            raise ValueError(fault)
        return part

    return model_validator(mode="after")(check)


def type_of(part: Any) -> Any:
    """Returns the `type` of a part of a body, parsed or not: it selects the branch of a union."""
    return part.get("type") if isinstance(part, dict) else getattr(part, "type", None)


class Frozen(BaseModel):
    """Immutable value from a file or from code, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ProfileError(Exception):
    """A profile that cannot work here; one sentence, or a line each, says what to change."""


class BodyPart(BaseModel):
    """Part of a request body. `null` in an optional field is the same as leaving the field out.

    Many clients send every field that they know, with `null`, or in forms an empty text, where it is not set. A class
    that sets `_keeps_empty` drops empty texts too, except in the fields that it names there.
    """

    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True)

    _optional: ClassVar[frozenset[str]] = frozenset()
    """Names of the optional fields on the wire."""
    _keeps_empty: ClassVar[frozenset[str] | None] = None
    _unless_empty: ClassVar[frozenset[str]] = frozenset()
    """Optional fields in which an empty text counts as absent, too."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Collects the names of optional fields, once for each class."""
        fields = cls.model_fields.items()
        cls._optional = frozenset(field.alias or name for name, field in fields if not field.is_required())
        cls._unless_empty = frozenset() if cls._keeps_empty is None else cls._optional - cls._keeps_empty

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        # A required field, or one that is not in the schema, keeps its null and is refused for it.
        if isinstance(data, dict) and (None in data.values() or (cls._unless_empty and "" in data.values())):
            absent = {None: cls._optional, "": cls._unless_empty}
            return {name: value for name, value in data.items() if value not in (None, "") or name not in absent[value]}
        return data


class Lenient(BodyPart):
    """Body part in the schema of another API: fields of that schema without a use here are ignored."""

    model_config = ConfigDict(extra="ignore")


class Strict(BodyPart):
    """Body part in the schema of this API. Unknown fields are refused, so that a typo is noticed."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _one_unknown_is_enough(cls, fields: Any) -> Any:
        """Keeps one unknown field of many: pydantic would collect an error for each of them."""
        declared = cls.model_fields
        if not isinstance(fields, dict) or len(fields) <= len(declared):
            return fields
        unknown = next(name for name in fields if name not in declared)
        return {name: fields[name] for name in declared if name in fields} | {unknown: fields[unknown]}


Text = str | tuple[int, ...]
"""Text, or the token ids of one."""


def read_texts(most: int, called: str) -> BeforeValidator:
    """Returns a validator that reads one text or a list of texts as a list.

    The validator raises ValueError for a wrong type or count, and for an empty text.
    """
    forms = str | list[str] | list[int] | list[list[int]]
    return BeforeValidator(partial(_texts, most=most, called=called), json_schema_input_type=forms)


def _texts(value: Any, most: int, called: str) -> tuple[Text, ...]:
    listed = value if isinstance(value, list) and not _is_ids(value) else [value]
    if not 1 <= len(listed) <= most:
        raise ValueError(f"{len(listed)} {called} were sent; 1 to {most} are allowed")
    if listed is not value:
        return (_text(value, "it", "strings or token ids"),)
    return tuple(_text(item, f"item {index}", "token ids") for index, item in enumerate(listed))


def _text(value: Any, name: str, items: str) -> Text:
    """One text, which a sentence calls `name`; as an array it may have such `items`. Raises ValueError."""
    if not isinstance(value, str) and not _is_ids(value):
        raise ValueError(f"{name} is neither a string nor an array of {items}")
    if not value:
        raise ValueError(f"{name} is empty")
    if isinstance(value, str):
        return value
    if min(value) < 0:
        raise ValueError(f"{name} has the token id {min(value)}; ids are 0 or more")
    return tuple(value)


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


def query_parameter(name: str, about: str, **schema: Any) -> dict[str, Any]:
    """Returns an optional query parameter, as OpenAPI describes it."""
    return {"name": name, "in": "query", "required": False, "description": about, "schema": schema}


def rows_of_page(limit: str | None, default: int, most: int) -> int:
    """Returns the query parameter `limit`, or `default` if it is missing. Raises INVALID_REQUEST beyond 1 to `most`."""
    if limit is None:
        return default
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 10 and 1 <= int(limit) <= most):
        raise INVALID_REQUEST(f"`limit` is {limit[:64]!r}; send a number from 1 to {most}", param="limit")
    return int(limit)
