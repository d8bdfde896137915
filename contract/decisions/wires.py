"""The two de-facto wires of decisions, as other shapes of the same request and the same answers. Spec 8 of the design.

    POST /systemone                        SystemOneRequest: `state`, questions by name with `criteria`
    POST /decisions with `input`           ListedRequest: `input`, a list of questions
      `- questions() in our types -> the engine -> our answers -> reply() in the shape that was asked for

Their clients do without a policy, and what they send beside the fields below is ignored, as in their own APIs. Bounds
are ours: what our questions may not hold is refused with our errors.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    RootModel,
    Tag,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from contract.body import explain
from contract.decisions.answers import Readings
from contract.decisions.request import (
    DecisionRequest,
    Image,
    Policy,
    Question,
    Questions,
    ScoreQuestion,
    State,
    check_judged,
    counted,
    state_text,
)
from contract.limits import DECISION_IMAGES

_QUESTIONS: TypeAdapter[dict[str, Question]] = TypeAdapter(Questions)
HOLDS, FAILS = "the statement is true", "the statement is false"
"""What true and false mean where a client does not say."""

Content = str | dict[str, Any] | list[Any]


class Lenient(BaseModel):
    """Part of a foreign body."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, frozen=True)


class ForeignRequest(Lenient):
    """What both wires have in common, seen as one of our requests."""

    _asked: dict[str, Question] = PrivateAttr(default_factory=dict)

    @property
    def policy(self) -> Policy:
        """These wires know none."""
        return Policy()

    @property
    def order(self) -> str:
        """These wires know one."""
        return "source"

    @property
    def preset(self) -> None:
        """These wires know none."""

    def named_questions(self) -> dict[str, Question]:
        """Ours, by name, in source order."""
        return self._asked

    def _translate(self, questions: dict[str, dict[str, Any]]) -> None:
        try:
            self._asked.update(_QUESTIONS.validate_python(questions))
        except ValidationError as error:
            raise explain(error) from None


# --- POST /systemone -------------------------------------------------------------------------------------------------


class SystemOneQuestion(Lenient):
    """`criteria` is an object of descriptions by option (choice), of `true` and `false` (noul), or a list (score)."""

    type: Literal["choice", "noul", "score"]
    instructions: Content | None = None
    criteria: dict[str, Content | None] | list[Content] | None = None

    def ours(self) -> dict[str, Any]:
        """As one of our questions. Raises ValueError where `criteria` does not fit the type."""
        asked = state_text(self.instructions) if self.instructions else "Which of these is right?"
        if self.type == "score":
            if not isinstance(self.criteria, list):
                raise ValueError("`criteria` of a score is a list of levels")
            return {"type": "score", "instructions": asked, "levels": [state_text(level) for level in self.criteria]}
        if isinstance(self.criteria, list) or (self.type == "choice" and self.criteria is None):
            raise ValueError(f"`criteria` of a {self.type} is an object")
        described = {name: None if text is None else state_text(text) for name, text in (self.criteria or {}).items()}
        if self.type == "choice":
            options = [{"id": name, "description": text} for name, text in described.items()]
            return {"type": "choice", "instructions": asked, "options": options}
        if unknown := set(described) - {"true", "false"}:
            raise ValueError(f"`criteria` of a noul has `true` and `false`, not `{unknown.pop()[:64]}`")
        return {
            "type": "binary",
            "instructions": asked,
            "true_description": described.get("true") or HOLDS,
            "false_description": described.get("false") or FAILS,
        }


class SystemOneAsset(Lenient):
    """An image inside the body. Ignored like other fields it would be judged unseen."""

    type: Literal["image"] = "image"
    format: Literal["png", "jpg", "jpeg"]
    data_base64: str

    def address(self) -> str:
        """As a `data:` address."""
        return f"data:image/{'png' if self.format == 'png' else 'jpeg'};base64,{self.data_base64}"


class SystemOneRequest(ForeignRequest):
    """A body of POST /systemone."""

    state: State
    questions: dict[str, SystemOneQuestion]
    model: str | None = None
    images: list[str] | None = None
    assets: dict[str, SystemOneAsset] | None = None

    @model_validator(mode="after")
    def _check(self) -> SystemOneRequest:
        check_judged(self.text())
        counted(len(self.image_addresses()), (0, DECISION_IMAGES), "images")
        self._translate({name: question.ours() for name, question in self.questions.items()})
        return self

    def image_addresses(self) -> list[str]:
        """`data:` addresses, checked."""
        addresses = [*(self.images or ()), *(asset.address() for asset in (self.assets or {}).values())]
        return [Image(data_url=address).data_url for address in addresses]

    def text(self) -> str:
        """What is judged."""
        return state_text(self.state)

    def reply(self, decision_id: str, model: str, answers: dict[str, Any], readings: Readings) -> dict[str, Any]:
        """The body of the answer."""
        return {
            "id": decision_id,
            "object": "structured_decision",
            "created": int(time.time()),
            "model": model,
            "answers": {name: _system_one(self._asked[name], answer) for name, answer in answers.items()},
            "usage": {"input_tokens": readings.input_tokens, "output_tokens": 0},
            "diagnostics": {name: answer["diagnostics"] for name, answer in answers.items()},
        }


def _confidence(answer: dict[str, Any]) -> float:
    """Probability of the chosen option among all that the model could have said."""
    return float(answer["max_probability"] * answer["diagnostics"]["label_mass"])


def _system_one(question: Question, answer: dict[str, Any]) -> dict[str, Any]:
    if question.type == "binary":
        return {"type": "noul", "noul": answer["probability_true"], "confidence": _confidence(answer)}
    probabilities = answer["probabilities"]
    if isinstance(question, ScoreQuestion):
        return {
            "type": "score",
            "score": answer["expected_index"],
            "legend": dict(zip(question.labels, question.levels, strict=True)),
            "probabilities": probabilities,
            "confidence": _confidence(answer),
        }
    return {
        "type": "choice",
        "choice": answer["value"],
        "probabilities": probabilities,
        "confidence": _confidence(answer),
    }


# --- POST /decisions with `input` ------------------------------------------------------------------------------------


class InputPart(Lenient):
    """A piece of a message or of a question's text."""

    type: Literal["input_text", "output_text", "refusal", "input_json", "input_image"]
    text: str | None = None
    refusal: str | None = None
    data: dict[str, Any] | list[Any] | None = None
    image_url: str | None = None

    @model_validator(mode="after")
    def _check(self) -> InputPart:
        if self.type == "input_image":
            Image(data_url=self.image_url or "")
        elif self.text is None and self.refusal is None and self.data is None:
            raise ValueError(f"a part of type `{self.type}` is empty")
        return self

    def words(self) -> str:
        """As text; an image has none."""
        return self.text or self.refusal or ("" if self.data is None else state_text(self.data))


Parts = str | list[InputPart]


def _words(parts: Parts) -> str:
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
        """As the model reads it."""
        if self.type == "message":
            return f"{self.role or 'user'}: {_words(self.content)}"
        if self.type.endswith("_output"):
            return f"tool: {_words(self.output)}"
        return f"call of {self.name}: {self.arguments or self.input}"


class ListedChoice(Lenient):
    """An option; a boolean and a string of the same text are different values."""

    value: str | bool
    description: str | None = None

    def words(self) -> str:
        """As the model reads it."""
        return self.value if isinstance(self.value, str) else str(self.value).lower()


class ListedLevel(Lenient):
    """A level of a scale."""

    label: str
    description: str | None = None

    def words(self) -> str:
        """As the model reads it."""
        return f"{self.label}: {self.description}" if self.description else self.label


class ListedQuestion(Lenient):
    """A question without a name of its own is known by its place."""

    type: Literal["predicate", "choice", "score"]
    instructions: Parts
    name: str | None = None
    choices: list[ListedChoice] = []
    levels: list[ListedLevel] = []

    def ours(self) -> dict[str, Any]:
        """As one of our questions."""
        asked = {"instructions": _words(self.instructions)}
        if self.type == "predicate":
            return asked | {"type": "binary", "true_description": HOLDS, "false_description": FAILS}
        if self.type == "score":
            return asked | {"type": "score", "levels": [level.words() for level in self.levels]}
        options = [{"id": choice.words(), "description": choice.description} for choice in self.choices]
        return asked | {"type": "choice", "options": options}

    def reply(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The answer in the shape of this wire."""
        named: dict[str, Any] = {"type": self.type, "name": self.name}
        if self.type == "predicate":
            return named | {"probability": answer["probability_true"]}
        given = list(answer["probabilities"].values())
        named["confidence"] = _confidence(answer)
        if self.type == "score":
            levels = [
                {"label": level.label, "value": index, "probability": probability}
                for index, (level, probability) in enumerate(zip(self.levels, given, strict=True))
            ]
            return named | {"score": answer["expected_index"], "probabilities": levels}
        values = [choice.value for choice in self.choices]
        return named | {
            "choice": values[given.index(max(given))],
            "probabilities": [{"value": v, "probability": p} for v, p in zip(values, given, strict=True)],
        }


class ListedRequest(ForeignRequest):
    """A body of POST /decisions in the third party's shape."""

    input: str | Annotated[list[InputItem], Field(min_length=1)]
    questions: list[ListedQuestion]
    model: str | None = None

    @model_validator(mode="after")
    def _check(self) -> ListedRequest:
        check_judged(self.text())
        counted(len(self.image_addresses()), (0, DECISION_IMAGES), "images")
        self._translate({f"{index}": question.ours() for index, question in enumerate(self.questions)})
        return self

    def image_addresses(self) -> list[str]:
        """`data:` addresses, checked."""
        contents = [question.instructions for question in self.questions]
        if not isinstance(self.input, str):
            contents += [parts for item in self.input for parts in (item.content, item.output)]
        return [part.image_url for parts in contents if not isinstance(parts, str) for part in parts if part.image_url]

    def text(self) -> str:
        """What is judged."""
        return self.input if isinstance(self.input, str) else "\n\n".join(item.words() for item in self.input)

    def reply(self, decision_id: str, model: str, answers: dict[str, Any], readings: Readings) -> dict[str, Any]:
        """The body of the answer."""
        tokens = readings.input_tokens
        return {
            "id": decision_id,
            "object": "decision",
            "model": model,
            "answers": [
                question.reply(answer) for question, answer in zip(self.questions, answers.values(), strict=True)
            ],
            "usage": {
                "input_tokens": tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 0,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": tokens,
            },
        }


def _shape(data: Any) -> str:
    is_listed = isinstance(data, dict) and "input" in data and isinstance(data.get("questions"), list)
    return "third party" if is_listed else "our own"


class DecisionBody(
    RootModel[
        Annotated[
            Annotated[DecisionRequest, Tag("our own")] | Annotated[ListedRequest, Tag("third party")],
            Discriminator(_shape),
        ]
    ]
):
    """A body of POST /decisions, in our shape or the third party's. Tags are no identifiers: no error names them."""
