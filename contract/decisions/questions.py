"""Questions of a decision, the policy that releases their answers, and packs of questions.

Texts that are too long are 413; a count outside its bounds and all other faults are 400.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import TypedDict

from contract.base import Items, Strict
from contract.errors import REQUEST_TOO_LARGE, UNKNOWN_PRESET
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
            raise REQUEST_TOO_LARGE(f"{what} of {len(text)} characters was sent; at most {chars} are allowed")
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
    """Option of a choice."""

    id: Description
    description: Description | None = None


class ChoiceQuestion(Strict):
    """A choice of one of several options."""

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
    """A score on an ordered scale. The answer counts levels from 0."""

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
    """A question that is true or false."""

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
"""Input to judge: text, or JSON."""


def state_text(state: State) -> str:
    """Returns a state as text, JSON in source order."""
    return state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)


class Policy(Strict):
    """Rule for the release of answers: only after review by a person (`review_only`), or above a threshold."""

    mode: Literal["review_only", "threshold"] = "review_only"
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Policy:
        if (self.mode == "threshold") != (self.threshold is not None):
            raise ValueError(
                "`threshold` (a number from 0 to 1) is required with the mode `threshold`, and allowed only with it"
            )
        return self


class Example(Strict):
    """A state with the answers of a person: option ids, level indices, booleans."""

    state: State
    expected: dict[str, bool | int | str]


class Preset(Strict):
    """A pack of questions that the server stores. A change of wording is a new version.

    Attributes:
        examples: examples for clients, with which every runtime is measured before it answers.
    """

    id: str
    version: str
    title: str
    description: str
    questions: Questions
    examples: Annotated[list[Example], Field(min_length=1)]

    @model_validator(mode="after")
    def _check(self) -> Preset:
        for example in self.examples:
            if set(example.expected) != set(self.questions):
                raise ValueError(f"an example of `{self.id}` must expect exactly one answer to each question")
            for name, value in example.expected.items():
                self.expected_index(name, value)
        return self

    def expected_index(self, name: str, value: bool | int | str) -> int:
        """Returns the index of an expected value among the labels of question `name`. Raises ValueError."""
        label = str(value).lower() if isinstance(value, bool) else str(value)
        labels = self.questions[name].labels
        if label not in labels:
            raise ValueError(f"`{value}` is not a possible answer to `{name}` of `{self.id}`")
        return labels.index(label)


class PresetObject(TypedDict):
    """A pack of questions, with example states and their expected answers."""

    object: Literal["decision_preset"]
    id: str
    version: str
    title: str
    description: str
    questions: dict[str, Question]
    examples: list[Example]


class PresetList(TypedDict):
    """Packs of questions."""

    object: Literal["list"]
    data: list[PresetObject]


def named(presets: Mapping[str, Preset], id: str) -> Preset:
    """Returns the pack `id`. Raises UNKNOWN_PRESET."""
    if id not in presets:
        names = ", ".join(f"`{name}`" for name in presets)
        raise UNKNOWN_PRESET(f"there is no preset `{id[:100]}`; choose one of {names}", param="preset")
    return presets[id]


def listed_presets(presets: Iterable[Preset]) -> dict[str, Any]:
    """Returns a `PresetList` as JSON values."""
    data = [{"object": "decision_preset", **preset.model_dump(exclude_none=True)} for preset in presets]
    return {"object": "list", "data": data}
