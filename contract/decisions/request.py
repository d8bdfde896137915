"""POST /decisions: what a body may say. Spec 4 (decision engine) and 8.

    DecisionRequest                       a validated body
      |- state or messages   -> text()    what is judged, as the model reads it
      |- questions or preset              by name, in source order
      `- images: Image                    `data:` addresses only
    Preset                                a pack of questions with versions and labelled examples

What is too long is 413; a count outside its bounds and everything else that is wrong is 400 (design 7.16).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from contract.errors import REQUEST_TOO_LARGE
from contract.limits import (
    DECISION_BODY_BYTES,
    DECISION_DESCRIPTION_CHARS,
    DECISION_IMAGE_BYTES,
    DECISION_IMAGES,
    DECISION_LEVELS,
    DECISION_OPTIONS,
    DECISION_QUESTION_CHARS,
    DECISION_QUESTIONS,
    DECISION_STATE_CHARS,
)

IMAGE_ADDRESS = re.compile(r"data:image/(?:png|jpeg|webp|gif);base64,")
MAX_BODY_BYTES = DECISION_BODY_BYTES + DECISION_IMAGES * -(-DECISION_IMAGE_BYTES // 3) * 4
"""Of a body with its images: nothing longer can be valid."""


class Strict(BaseModel):
    """Part of a body. A field that is not in the schema is refused: a misspelt policy must not be lost in silence."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


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
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            raise ValueError(f"the {what} `{text[:64]}` appears twice")
        seen.add(text)


def counted(count: int, bounds: tuple[int, int], what: str) -> None:
    """Raises ValueError for a count outside its bounds."""
    low, high = bounds
    if not low <= count <= high:
        raise ValueError(f"{count} {what} were sent; {low} to {high} are allowed")


class Option(Strict):
    """What a choice may fall on."""

    id: Description
    description: Description | None = None


class ChoiceQuestion(Strict):
    """One of several options."""

    type: Literal["choice"]
    instructions: Instructions
    options: list[Option]

    @model_validator(mode="after")
    def _check(self) -> ChoiceQuestion:
        counted(len(self.options), DECISION_OPTIONS, "options")
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
    levels: list[Description]

    @model_validator(mode="after")
    def _check(self) -> ScoreQuestion:
        counted(len(self.levels), DECISION_LEVELS, "levels")
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


def _few_questions(questions: dict[str, Any]) -> dict[str, Any]:
    counted(len(questions), (1, DECISION_QUESTIONS), "questions")
    return questions


Questions = Annotated[dict[QuestionName, Question], AfterValidator(_few_questions)]
State = str | dict[str, Any] | list[Any]


class Turn(Strict):
    """A turn of a conversation that is judged."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class Policy(Strict):
    """When an answer is released: never without a person (`review_only`), or above a threshold."""

    mode: Literal["review_only", "threshold"] = "review_only"
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Policy:
        if (self.mode == "threshold") != (self.threshold is not None):
            raise ValueError("`threshold` (a number from 0 to 1) goes with the mode `threshold`, and only with it")
        return self


class Image(Strict):
    """An image in the body itself: nothing is ever fetched for a client."""

    data_url: str

    @model_validator(mode="after")
    def _check(self) -> Image:
        start = IMAGE_ADDRESS.match(self.data_url)
        if not start:
            raise ValueError(
                "images are taken as `data:image/png;base64,...` (or jpeg, webp, gif) only; none is fetched"
            )
        try:
            size = len(base64.b64decode(self.data_url[start.end() :], validate=True))
        except (binascii.Error, ValueError):
            raise ValueError("the image's `data:` address is not valid base64") from None
        if size > DECISION_IMAGE_BYTES:
            raise REQUEST_TOO_LARGE(
                f"an image of {size} bytes was sent; {DECISION_IMAGE_BYTES} are allowed", param="images"
            )
        return self


class DecisionRequest(Strict):
    """A body of POST /decisions."""

    state: State | None = None
    messages: Annotated[list[Turn], Field(min_length=1)] | None = None
    questions: Questions | None = None
    preset: str | None = None
    model: str | None = None
    images: list[Image] = []
    policy: Policy = Policy()
    order: Literal["source", "both"] = "source"
    request_id: str | None = None

    @model_validator(mode="after")
    def _check(self) -> DecisionRequest:
        for one, other in (("state", "messages"), ("questions", "preset")):
            given = [name for name in (one, other) if getattr(self, name) is not None]
            if len(given) != 1:
                raise ValueError(f"send exactly one of `{one}` and `{other}`; {len(given) or 'none'} came")
        counted(len(self.images), (0, DECISION_IMAGES), "images")
        # Of a conversation, only what was said counts against the limit.
        said = self.text() if self.messages is None else "".join(turn.content for turn in self.messages)
        check_judged(said)
        return self

    def text(self) -> str:
        """What is judged, as the model reads it."""
        if self.messages is not None:
            return "\n\n".join(f"{turn.role}: {turn.content}" for turn in self.messages)
        return state_text("" if self.state is None else self.state)

    def named_questions(self) -> dict[str, Question]:
        """The questions of the body; empty where a preset is named."""
        return self.questions or {}

    def image_addresses(self) -> list[str]:
        """`data:` addresses, checked."""
        return [image.data_url for image in self.images]


def check_judged(text: str) -> None:
    """Raises ValueError where there is nothing to judge, and REQUEST_TOO_LARGE where there is too much."""
    if not text.strip():
        raise ValueError("there is nothing to judge: the state is empty")
    if len(text) > DECISION_STATE_CHARS:
        raise REQUEST_TOO_LARGE(
            f"a state of {len(text)} characters was sent; {DECISION_STATE_CHARS} are allowed", param="state"
        )


def check_body(body_bytes: int, image_addresses: Sequence[str]) -> None:
    """Raises REQUEST_TOO_LARGE if a body is too long without what its images hold."""
    size = body_bytes - sum(len(address) - address.index(",") - 1 for address in image_addresses)
    if size > DECISION_BODY_BYTES:
        raise REQUEST_TOO_LARGE(
            f"the body has {size} bytes without its images' data; {DECISION_BODY_BYTES} are allowed"
        )


def state_text(state: State) -> str:
    """A state as text: JSON as JSON, in source order."""
    return state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)


class Example(Strict):
    """A state with the answers that a person gave: option ids, level indices, booleans."""

    state: State
    expected: dict[str, bool | int | str]


class Preset(Strict):
    """A pack of questions that the server keeps. A change of wording is a new version.

    Attributes:
        examples: shown to clients, and what every runtime is measured with before it answers.
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
                raise ValueError(f"an example of `{self.id}` must expect an answer to each question, and no other")
            for name, value in example.expected.items():
                self.expected_index(name, value)
        return self

    def expected_index(self, name: str, value: bool | int | str) -> int:
        """The place of an expected value among the labels of question `name`. Raises ValueError."""
        label = str(value).lower() if isinstance(value, bool) else str(value)
        labels = self.questions[name].labels
        if label not in labels:
            raise ValueError(f"`{value}` is no answer to `{name}` of `{self.id}`")
        return labels.index(label)

    def public(self) -> dict[str, Any]:
        """The preset in GET /decisions/presets."""
        return {"object": "decision_preset", **self.model_dump(exclude_none=True)}
