"""When an answer is released. Spec 4 (decision engine)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from contract.base import Strict


class Policy(Strict):
    """When an answer is released: never without a person (`review_only`), or above a threshold."""

    mode: Literal["review_only", "threshold"] = "review_only"
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Policy:
        if (self.mode == "threshold") != (self.threshold is not None):
            raise ValueError(
                "`threshold` (a number from 0 to 1) is required with the mode `threshold`, and allowed only with it"
            )
        return self
