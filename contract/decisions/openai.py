"""OpenAI's wire of decisions: POST /decisions with `input`.

    OpenAIDecisionRequest      `input`, a list of questions
    OpenAIDecisionReply        the reply

A reply in this shape cannot say that an answer is withheld, so `policy` is refused. What clients send beside the fields
below is ignored, as in their own API. Bounds are ours: what our questions may not hold is refused with our errors.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import PrivateAttr, model_validator
from typing_extensions import TypedDict

from contract.base import Items, Lenient
from contract.decisions.answers import Answer
from contract.decisions.decision import (
    FAILS,
    HOLDS,
    Decision,
    DecisionResult,
    NoPolicy,
    check_state,
    checked_images,
    confidence,
    our_questions,
)
from contract.decisions.input import InputItem, Parts, words_of
from contract.limits import DECISION_LEVELS, DECISION_OPTIONS, DECISION_QUESTIONS, MAX_MESSAGES


class ListedChoice(Lenient):
    """An option; a boolean and a string of the same text are different values."""

    value: str | bool
    description: str | None = None

    def words(self) -> str:
        return self.value if isinstance(self.value, str) else str(self.value).lower()


class ListedLevel(Lenient):
    """A level of a scale."""

    label: str
    description: str | None = None

    def words(self) -> str:
        return f"{self.label}: {self.description}" if self.description else self.label


class ListedQuestion(Lenient):
    """A question without a name of its own is known by its place."""

    type: Literal["predicate", "choice", "score"]
    instructions: Parts
    name: str | None = None
    choices: Annotated[list[ListedChoice], Items(DECISION_OPTIONS[1])] = []
    levels: Annotated[list[ListedLevel], Items(DECISION_LEVELS[1])] = []

    def ours(self) -> dict[str, Any]:
        instructions = {"instructions": words_of(self.instructions)}
        if self.type == "predicate":
            return instructions | {"type": "binary", "true_description": HOLDS, "false_description": FAILS}
        if self.type == "score":
            return instructions | {"type": "score", "levels": [level.words() for level in self.levels]}
        options = [{"id": choice.words(), "description": choice.description} for choice in self.choices]
        return instructions | {"type": "choice", "options": options}

    def render(self, answer: Answer) -> ListedAnswer:
        if answer["type"] == "binary":
            return {"type": "predicate", "name": self.name, "probability": answer["probability_true"]}
        probabilities = list(answer["probabilities"].values())
        if answer["type"] == "score":
            levels: list[LevelProbability] = [
                {"label": level.label, "value": index, "probability": probability}
                for index, (level, probability) in enumerate(zip(self.levels, probabilities, strict=True))
            ]
            return {
                "type": "score",
                "name": self.name,
                "confidence": confidence(answer),
                "score": answer["expected_index"],
                "probabilities": levels,
            }
        values = [choice.value for choice in self.choices]
        return {
            "type": "choice",
            "name": self.name,
            "confidence": confidence(answer),
            "choice": values[probabilities.index(max(probabilities))],
            "probabilities": [{"value": v, "probability": p} for v, p in zip(values, probabilities, strict=True)],
        }


class OpenAIDecisionRequest(Lenient):
    """A body of POST /decisions in OpenAI's shape."""

    input: str | Annotated[list[InputItem], Items(MAX_MESSAGES, least=1)]
    questions: Annotated[list[ListedQuestion], Items(DECISION_QUESTIONS, least=1)]
    model: str | None = None
    policy: NoPolicy = None

    _decision: Decision = PrivateAttr()

    @model_validator(mode="after")
    def _check(self) -> OpenAIDecisionRequest:
        text = self.input if isinstance(self.input, str) else "\n\n".join(item.words() for item in self.input)
        check_state(text)
        images = checked_images(self._addresses())
        questions = our_questions({f"{index}": question.ours() for index, question in enumerate(self.questions)})
        self._decision = Decision(text, questions, model=self.model, images=images)
        return self

    def decision(self) -> Decision:
        return self._decision

    def render(self, result: DecisionResult) -> OpenAIDecisionReply:
        tokens = result.readings.input_tokens
        return {
            "id": result.id,
            "object": "decision",
            "model": result.model.id,
            "answers": [
                question.render(answer)
                for question, answer in zip(self.questions, result.answers.values(), strict=True)
            ],
            "usage": {
                "input_tokens": tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 0,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": tokens,
            },
        }

    def _addresses(self) -> list[str]:
        contents = [question.instructions for question in self.questions]
        if not isinstance(self.input, str):
            contents += [parts for item in self.input for parts in (item.content, item.output)]
        return [part.image_url for parts in contents if not isinstance(parts, str) for part in parts if part.image_url]


class PredicateAnswer(TypedDict):
    """The answer to a statement that holds or not."""

    type: Literal["predicate"]
    name: str | None
    probability: float


class ValueProbability(TypedDict):
    """The probability of one option."""

    value: str | bool
    probability: float


class ListedChoiceAnswer(TypedDict):
    """The answer to a choice."""

    type: Literal["choice"]
    name: str | None
    confidence: float
    choice: str | bool
    probabilities: list[ValueProbability]


class LevelProbability(TypedDict):
    """The probability of one level; `value` counts from 0."""

    label: str
    value: int
    probability: float


class ListedScoreAnswer(TypedDict):
    """The answer to a score: the expected level, from 0."""

    type: Literal["score"]
    name: str | None
    confidence: float
    score: float
    probabilities: list[LevelProbability]


ListedAnswer = PredicateAnswer | ListedChoiceAnswer | ListedScoreAnswer


class InputDetails(TypedDict):
    """Nothing of a decision is kept for the next one."""

    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(TypedDict):
    """No text is generated."""

    reasoning_tokens: int


class OpenAIUsage(TypedDict):
    """Tokens that the model read."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class OpenAIDecisionReply(TypedDict):
    """Answers in the order of the questions."""

    id: str
    object: Literal["decision"]
    model: str
    answers: list[ListedAnswer]
    usage: OpenAIUsage
