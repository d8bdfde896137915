"""What every type of the contract is built on: how strict it is with what it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema


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


class Frozen(BaseModel):
    """A value of our own, from a file or from code: it cannot change and has no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Lenient(BaseModel):
    """Part of a request body whose schema is another API's: what that schema has and we do not use is ignored.

    Spec 1, rule 1.
    """

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, frozen=True)


class Strict(BaseModel):
    """Part of a request body of our own. A field that is not in the schema is refused, so that no typo is lost."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _one_unknown_is_enough(cls, fields: Any) -> Any:
        """Leaves one unknown field of many: pydantic would keep an error for each of them."""
        known = cls.model_fields
        if not isinstance(fields, dict) or len(fields) <= len(known):
            return fields
        unknown = next(name for name in fields if name not in known)
        return {name: fields[name] for name in known if name in fields} | {unknown: fields[unknown]}
