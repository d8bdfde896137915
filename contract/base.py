"""What every type of the contract is built on: how strict it is with what it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema

from contract.errors import INVALID_REQUEST


@dataclass(frozen=True, slots=True)
class Items:
    """How many items a list of a request may have, or members an object: `Annotated[list[Part], Items(256)]`.

    The first item that is wrong ends the reading. Pydantic would go on and keep an error for each, and a body of
    nothing but wrong items would hold the event loop for half a second.
    """

    most: int
    least: int = 0

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema of the list, bounded."""
        schema: Any = handler(source)
        if schema["type"] not in ("list", "dict"):
            raise TypeError(f"`Items` belongs on the list itself, inside of what is optional or converted: {source}")
        least = {"min_length": self.least} if self.least else {}
        bounded: CoreSchema = schema | least | {"max_length": self.most, "fail_fast": True}
        return bounded


def type_of(part: Any) -> Any:
    """The `type` of part of a body, before it is read or after: what decides between the branches of a union."""
    return part.get("type") if isinstance(part, dict) else getattr(part, "type", None)


class Frozen(BaseModel):
    """A value of our own, from a file or from code: it cannot change and has no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BodyPart(BaseModel):
    """Part of a request body. `null` for a field that may be left out is the same as leaving it out.

    Many clients write every field that they know, and say `null` for those that nobody has set.
    """

    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True)

    _optional: ClassVar[frozenset[str]] = frozenset()
    """Names on the wire of the fields that may be left out."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Collects these names, once for each class."""
        fields = cls.model_fields.items()
        cls._optional = frozenset(field.alias or name for name, field in fields if not field.is_required())

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        # A field that is wanted, or that is not in the schema, keeps its null and is refused for it.
        if isinstance(data, dict) and None in data.values():
            return {name: value for name, value in data.items() if value is not None or name not in cls._optional}
        return data


class Lenient(BodyPart):
    """One whose schema is another API's: what that schema has and we do not use is ignored."""

    model_config = ConfigDict(extra="ignore")


class Strict(BodyPart):
    """One of our own. A field that is not in the schema is refused, so that no typo is lost."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _one_unknown_is_enough(cls, fields: Any) -> Any:
        """Leaves one unknown field of many: pydantic would keep an error for each of them."""
        declared = cls.model_fields
        if not isinstance(fields, dict) or len(fields) <= len(declared):
            return fields
        unknown = next(name for name in fields if name not in declared)
        return {name: fields[name] for name in declared if name in fields} | {unknown: fields[unknown]}


def query_parameter(name: str, about: str, **schema: Any) -> dict[str, Any]:
    """An optional parameter of an address, as OpenAPI describes it."""
    return {"name": name, "in": "query", "required": False, "description": about, "schema": schema}


def rows_of_page(limit: str | None, default: int, most: int) -> int:
    """The parameter `limit` of an address: from 1 to `most`, `default` where it is missing. Raises INVALID_REQUEST."""
    if limit is None:
        return default
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 10 and 1 <= int(limit) <= most):
        raise INVALID_REQUEST(f"`limit` is {limit[:64]!r}; send a number from 1 to {most}", param="limit")
    return int(limit)
