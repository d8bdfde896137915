"""Fields that mean the same on every wire of an LLM: how tokens are drawn, and where an answer ends."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from contract.base import Items, Lenient
from contract.limits import (
    MAX_CHOICES,
    MAX_PENALTY,
    MAX_REPETITION_PENALTY,
    MAX_STOP_CHARS,
    MAX_STOPS,
    MAX_TEMPERATURE,
    MAX_TOP_K,
    MAX_TOP_LOGPROBS,
)

Temperature = Annotated[float, Field(ge=0, le=MAX_TEMPERATURE)]
TopP = Annotated[float, Field(gt=0, le=1)]
TopK = Annotated[int, Field(ge=0, le=MAX_TOP_K)]
MinP = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-MAX_PENALTY, le=MAX_PENALTY)]
RepetitionPenalty = Annotated[float, Field(gt=0, le=MAX_REPETITION_PENALTY)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Choices = Annotated[int, Field(ge=1, le=MAX_CHOICES)]
TokenLimit = Annotated[int, Field(ge=1)]
TopLogprobs = Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)]

StopSequences = Annotated[list[Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]], Items(MAX_STOPS)]


def listed(value: Any) -> Any:
    """A single string where a list may stand."""
    return [value] if isinstance(value, str) else value


Stop = Annotated[StopSequences | None, BeforeValidator(listed, json_schema_input_type=str | list[str] | None)]


class StreamOptions(Lenient):
    """`include_usage` adds a last event with the token counts."""

    include_usage: bool = False
