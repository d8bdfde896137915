"""What every type of the contract is built on: how strict it is with what it is given."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


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
