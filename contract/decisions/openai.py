"""OpenAI's wire of decisions: POST /decisions with `input`.

    OpenAIDecisionRequest      `input`, as text for a model, and a list of questions
    OpenAIDecisionReply        the reply
    DecisionBody               a body of POST /decisions on either wire

A reply in this shape cannot mark an answer as withheld, so `policy` is refused. Unknown fields are ignored, as in
OpenAI's API. Questions have the bounds and errors of the native wire.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, PrivateAttr, RootModel, Tag, model_validator
from typing_extensions import TypedDict

from contract.base import Items, Lenient
from contract.decisions.answers import Answer
from contract.decisions.decision import FAILS, HOLDS, DecisionResult, NoPolicy, check_image, confidence
from contract.decisions.native import DecisionRequest, shape_of, translated
from contract.decisions.questions import state_text
from contract.limits import DECISION_LEVELS, DECISION_OPTIONS, DECISION_QUESTIONS, MAX_MESSAGES, MAX_PARTS


class InputPart(Lenient):
    """A piece of a message, or of the text of a question."""

    type: Literal["input_text", "output_text", "refusal", "input_json", "input_image"]
    text: str | None = None
    refusal: str | None = None
    data: dict[str, Any] | list[Any] | None = None
    image_url: str | None = None

    @model_validator(mode="after")
    def _check(self) -> InputPart:
        if self.type == "input_image":
            check_image(self.image_url or "")
        elif self.text is None and self.refusal is None and self.data is None:
            raise ValueError(f"a part of type `{self.type}` is empty")
        return self

    def words(self) -> str:
        """Returns the part as text; an image has none."""
        return self.text or self.refusal or ("" if self.data is None else state_text(self.data))


Parts = str | Annotated[list[InputPart], Items(MAX_PARTS)]


def words_of(parts: Parts) -> str:
    """Returns `parts` as text, without their images."""
    return parts if isinstance(parts, str) else "\n".join(filter(None, (part.words() for part in parts)))


class InputItem(Lenient):
    """A message, a call of a tool, or its output."""

    type: Literal["message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"] = (
        "message"
    )
    role: Literal["user", "developer", "system", "assistant"] | None = None
    content: Parts = ""
    name: str = ""
    arguments: str = ""
    input: str = ""
    output: Parts = ""

    def words(self) -> str:
        if self.type == "message":
            return f"{self.role or 'user'}: {words_of(self.content)}"
        if self.type.endswith("_output"):
            return f"tool: {words_of(self.output)}"
        return f"call of {self.name}: {self.arguments or self.input}"


class ListedChoice(Lenient):
    """An option. A boolean and a string of the same text are different values."""

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
    """A question, identified by its place if it has no name."""

    type: Literal["predicate", "choice", "score"]
    instructions: Parts
    name: str | None = None
    choices: Annotated[list[ListedChoice], Items(DECISION_OPTIONS[1])] = []
    levels: Annotated[list[ListedLevel], Items(DECISION_LEVELS[1])] = []

    def native(self) -> dict[str, Any]:
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

    _native: DecisionRequest = PrivateAttr()

    @model_validator(mode="after")
    def _check(self) -> OpenAIDecisionRequest:
        text = self.input if isinstance(self.input, str) else "\n\n".join(item.words() for item in self.input)
        questions = enumerate(question.native() for question in self.questions)
        self._native = translated(text, self._addresses(), questions, self.model)
        return self

    def native(self) -> DecisionRequest:
        return self._native

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
    """Answer to a statement that is true or false."""

    type: Literal["predicate"]
    name: str | None
    probability: float


class ValueProbability(TypedDict):
    """Probability of one option."""

    value: str | bool
    probability: float


class ListedChoiceAnswer(TypedDict):
    """Answer to a choice."""

    type: Literal["choice"]
    name: str | None
    confidence: float
    choice: str | bool
    probabilities: list[ValueProbability]


class LevelProbability(TypedDict):
    """Probability of one level; `value` counts from 0."""

    label: str
    value: int
    probability: float


class ListedScoreAnswer(TypedDict):
    """Answer to a score: the expected level, from 0."""

    type: Literal["score"]
    name: str | None
    confidence: float
    score: float
    probabilities: list[LevelProbability]


ListedAnswer = PredicateAnswer | ListedChoiceAnswer | ListedScoreAnswer


class InputDetails(TypedDict):
    """Cached tokens, always 0: no decision is cached for the next one."""

    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(TypedDict):
    """Reasoning tokens, always 0: a decision generates no text."""

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


class DecisionBody(
    RootModel[
        Annotated[
            Annotated[DecisionRequest, Tag("(native)")] | Annotated[OpenAIDecisionRequest, Tag("(OpenAI)")],
            Discriminator(shape_of),
        ]
    ]
):
    """A body of POST /decisions: in the native shape, or with `input` in OpenAI's shape."""
