"""Forms that an answer is made to follow: OpenAI's `response_format`, and vLLM's `structured_outputs`. Spec 4.

What is written here is bounded before anything is compiled. What compiles in time is found out in
`models.llm.grammars`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from contract.base import Items, Lenient
from contract.chat.tools import Name

MAX_REGEX_CHARS = 2048
MAX_REPETITIONS = 1000
"""Of one piece of a regular expression."""
MAX_ALLOWED_ANSWERS = 256
"""Of `structured_outputs.choice`."""
MAX_ALLOWED_ANSWERS_CHARS = 8192
"""Of all of them together."""

COUNTS = re.compile(r"(?<!\\)\{\s*(\d*)\s*(?:,\s*(\d*)\s*)?\}")
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
    "json": "put a JSON schema into `response_format`",
    "json_object": "request any JSON object with `response_format`",
    "grammar": "a grammar is not supported, because there is no bound on the cost of its tokens",
    "structural_tag": "a structural tag is not supported; declare tools in `tools`",
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
                raise ValueError(f"`structured_outputs` supports `regex` and `choice`; {instead}")
        return value

    @field_validator("regex")
    @classmethod
    def _repeats_within_bounds(cls, regex: str | None) -> str | None:
        for counts in COUNTS.findall(regex or ""):
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
