"""System One's wire of decisions: POST /systemone.

    SystemOneRequest      `state`, questions by name with `criteria`
    SystemOneReply        the reply

`policy`, other fields and bounds are treated as on OpenAI's wire (`openai.py`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import PrivateAttr, model_validator
from typing_extensions import TypedDict

from contract.base import Items, Lenient
from contract.decisions.answers import Answer, Diagnostics
from contract.decisions.decision import FAILS, HOLDS, DecisionResult, NoPolicy, confidence
from contract.decisions.native import DecisionRequest, translated
from contract.decisions.questions import Question, QuestionName, ScoreQuestion, State, state_text
from contract.limits import DECISION_IMAGES, DECISION_LEVELS, DECISION_OPTIONS, DECISION_QUESTIONS

Content = str | dict[str, Any] | list[Any]


class SystemOneQuestion(Lenient):
    """A question. `criteria` describes options (choice), `true` and `false` (noul), or lists levels (score)."""

    type: Literal["choice", "noul", "score"]
    instructions: Content | None = None
    criteria: (
        Annotated[dict[str, Content | None], Items(DECISION_OPTIONS[1])]
        | Annotated[list[Content], Items(DECISION_LEVELS[1])]
        | None
    ) = None

    def native(self) -> dict[str, Any]:
        """Returns the question on the native wire. Raises ValueError if `criteria` does not fit the type."""
        question: dict[str, Any] = {
            "instructions": state_text(self.instructions) if self.instructions else "Which of these is right?"
        }
        if self.type == "score":
            if not isinstance(self.criteria, list):
                raise ValueError("`criteria` of a score must be a list of levels")
            return question | {"type": "score", "levels": [state_text(level) for level in self.criteria]}
        if isinstance(self.criteria, list) or (self.type == "choice" and self.criteria is None):
            raise ValueError(f"`criteria` of a {self.type} must be an object")
        described = {name: None if text is None else state_text(text) for name, text in (self.criteria or {}).items()}
        if self.type == "choice":
            options = [{"id": name, "description": text} for name, text in described.items()]
            return question | {"type": "choice", "options": options}
        if unknown := set(described) - {"true", "false"}:
            raise ValueError(f"`criteria` of a noul must have the keys `true` and `false`, not `{unknown.pop()[:64]}`")
        true, false = described.get("true") or HOLDS, described.get("false") or FAILS
        return question | {"type": "binary", "true_description": true, "false_description": false}


class SystemOneAsset(Lenient):
    """An image inside the body. It is not ignored like unknown fields, because the decision would miss it."""

    type: Literal["image"] = "image"
    format: Literal["png", "jpg", "jpeg"]
    data_base64: str

    def address(self) -> str:
        return f"data:image/{'png' if self.format == 'png' else 'jpeg'};base64,{self.data_base64}"


class SystemOneRequest(Lenient):
    """A body of POST /systemone."""

    state: State
    questions: Annotated[dict[QuestionName, SystemOneQuestion], Items(DECISION_QUESTIONS, least=1)]
    model: str | None = None
    images: Annotated[list[str], Items(DECISION_IMAGES)] | None = None
    assets: Annotated[dict[str, SystemOneAsset], Items(DECISION_IMAGES)] | None = None
    policy: NoPolicy = None

    _native: DecisionRequest = PrivateAttr()

    @model_validator(mode="after")
    def _check(self) -> SystemOneRequest:
        addresses = [*(self.images or ()), *(asset.address() for asset in (self.assets or {}).values())]
        questions = ((name, question.native()) for name, question in self.questions.items())
        self._native = translated(state_text(self.state), addresses, questions, self.model)
        return self

    def native(self) -> DecisionRequest:
        return self._native

    def render(self, result: DecisionResult) -> SystemOneReply:
        answers = result.answers
        return {
            "id": result.id,
            "object": "structured_decision",
            "created": result.created,
            "model": result.model.id,
            "answers": {name: _answer(result.questions[name], answer) for name, answer in answers.items()},
            "usage": {"input_tokens": result.readings.input_tokens, "output_tokens": 0},
            "diagnostics": {name: answer["diagnostics"] for name, answer in answers.items()},
        }


class NoulAnswer(TypedDict):
    """Answer to a question that is true or false."""

    type: Literal["noul"]
    noul: float
    confidence: float


class ChosenAnswer(TypedDict):
    """Answer to a choice."""

    type: Literal["choice"]
    choice: str
    probabilities: dict[str, float]
    confidence: float


class ScoredAnswer(TypedDict):
    """Answer to a score: the expected level, from 0."""

    type: Literal["score"]
    score: float
    legend: dict[str, str]
    probabilities: dict[str, float]
    confidence: float


class SystemOneUsage(TypedDict):
    """Tokens that the model read."""

    input_tokens: int
    output_tokens: int


class SystemOneReply(TypedDict):
    """A structured decision."""

    id: str
    object: Literal["structured_decision"]
    created: int
    model: str
    answers: dict[str, NoulAnswer | ChosenAnswer | ScoredAnswer]
    usage: SystemOneUsage
    diagnostics: dict[str, Diagnostics]


def _answer(question: Question, answer: Answer) -> NoulAnswer | ChosenAnswer | ScoredAnswer:
    if answer["type"] == "binary":
        return {"type": "noul", "noul": answer["probability_true"], "confidence": confidence(answer)}
    probabilities = answer["probabilities"]
    if answer["type"] == "score":
        assert isinstance(question, ScoreQuestion)
        return {
            "type": "score",
            "score": answer["expected_index"],
            "legend": dict(zip(question.labels, question.levels, strict=True)),
            "probabilities": probabilities,
            "confidence": confidence(answer),
        }
    return {
        "type": "choice",
        "choice": answer["value"],
        "probabilities": probabilities,
        "confidence": confidence(answer),
    }
