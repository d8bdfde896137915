"""Questions of a decision, whatever shape they came in, and the policy that releases their answers.

What is too long is 413; a count outside its bounds and everything else that is wrong is 400.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from contract.base import Items, Strict
from contract.errors import REQUEST_TOO_LARGE
from contract.limits import (
    DECISION_DESCRIPTION_CHARS,
    DECISION_LEVELS,
    DECISION_OPTIONS,
    DECISION_QUESTION_CHARS,
    DECISION_QUESTIONS,
)


def _at_most(chars: int, what: str) -> AfterValidator:
    def check(text: str) -> str:
        if not text.strip():
            raise ValueError(f"{what} must not be empty")
        if len(text) > chars:
            raise REQUEST_TOO_LARGE(f"{what} of {len(text)} characters was sent; {chars} are allowed")
        return text

    return AfterValidator(check)


Instructions = Annotated[str, _at_most(DECISION_QUESTION_CHARS, "a question text")]
Description = Annotated[str, _at_most(DECISION_DESCRIPTION_CHARS, "a description")]


def _all_different(texts: Iterable[str], what: str) -> None:
    earlier: set[str] = set()
    for text in texts:
        if text in earlier:
            raise ValueError(f"the {what} `{text[:64]}` appears twice")
        earlier.add(text)


class Option(Strict):
    """What a choice may fall on."""

    id: Description
    description: Description | None = None


class ChoiceQuestion(Strict):
    """One of several options."""

    type: Literal["choice"]
    instructions: Instructions
    options: Annotated[list[Option], Items(DECISION_OPTIONS[1], least=DECISION_OPTIONS[0])]

    @model_validator(mode="after")
    def _check(self) -> ChoiceQuestion:
        _all_different(self.labels, "option id")
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """Keys of the answer's `probabilities`, in source order."""
        return tuple(option.id for option in self.options)


class ScoreQuestion(Strict):
    """A place on an ordered scale. The answer counts levels from 0."""

    type: Literal["score"]
    instructions: Instructions
    levels: Annotated[list[Description], Items(DECISION_LEVELS[1], least=DECISION_LEVELS[0])]

    @model_validator(mode="after")
    def _check(self) -> ScoreQuestion:
        _all_different(self.levels, "level")
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """Keys of the answer's `probabilities`: the index of each level."""
        return tuple(str(index) for index in range(len(self.levels)))


class BinaryQuestion(Strict):
    """True or false."""

    type: Literal["binary"]
    instructions: Instructions
    true_description: Description
    false_description: Description

    @property
    def labels(self) -> tuple[str, ...]:
        """Keys of the answer's `probabilities`."""
        return ("true", "false")


Question = Annotated[ChoiceQuestion | ScoreQuestion | BinaryQuestion, Field(discriminator="type")]
QuestionName = Annotated[str, Field(min_length=1)]

Questions = Annotated[dict[QuestionName, Question], Items(DECISION_QUESTIONS, least=1)]
State = str | dict[str, Any] | list[Any]
"""What is judged: text, or JSON."""


def state_text(state: State) -> str:
    """A state as text: JSON as JSON, in source order."""
    return state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)


class Policy(Strict):
    """When an answer is released: never without a person (`review_only`), or above a threshold."""

    mode: Literal["review_only", "threshold"] = "review_only"
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Policy:
        if (self.mode == "threshold") != (self.threshold is not None):
            raise ValueError("`threshold` (a number from 0 to 1) goes with the mode `threshold`, and only with it")
        return self
