"""Fields with the same meaning on every wire of an LLM: sampling of tokens, and end of an answer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contract.base import Items, Lenient, from_text
from contract.limits import (
    MAX_CHOICES,
    MAX_PENALTY,
    MAX_REPETITION_PENALTY,
    MAX_STOP_CHARS,
    MAX_STOPS,
    MAX_TEMPERATURE,
    MAX_TOP_LOGPROBS,
)

Temperature = Annotated[float, Field(ge=0, le=MAX_TEMPERATURE)]
TopP = Annotated[float, Field(ge=0, le=1)]
"""Probability of the tokens to sample from, together; 0 leaves only the most probable token."""
TopK = Annotated[int, Field(ge=-1)]
"""Number of tokens to sample from; 0 allows all, and so does -1, which older clients of vLLM send."""
MinP = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-MAX_PENALTY, le=MAX_PENALTY)]
RepetitionPenalty = Annotated[float, Field(gt=0, le=MAX_REPETITION_PENALTY)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Choices = Annotated[int, Field(ge=1, le=MAX_CHOICES)]
TokenLimit = Annotated[int, Field(ge=1)]
TopLogprobs = Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)]

StopSequences = Annotated[list[Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]], Items(MAX_STOPS)]


Stop = Annotated[StopSequences | None, from_text(lambda text: [text], str | list[str] | None)]


class StreamOptions(Lenient):
    """Options of a stream. `include_usage` adds a last event with the token counts."""

    include_usage: bool = False
