"""The native wire of decisions: POST /decisions.

DecisionRequest                       a validated body
|- state or messages                input to judge
|- questions or preset              by name, in source order
`- images                           `data:` addresses only
DecisionReply                         the reply
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NotRequired, Protocol

from pydantic import TypeAdapter, ValidationError, model_validator
from typing_extensions import TypedDict

from contract.base import Items, Strict
from contract.body import explain
from contract.decisions.answers import Answer
from contract.decisions.decision import DecisionResult, check_image, check_state
from contract.decisions.engine import Readings
from contract.decisions.questions import Policy, Question, Questions, State, state_text
from contract.limits import DECISION_IMAGES, MAX_MESSAGES


class Turn(Strict):
    """A turn of a conversation that is judged."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class Image(Strict):
    """An image inside the body: the server fetches nothing for a client."""

    data_url: str

    @model_validator(mode="after")
    def _check(self) -> Image:
        check_image(self.data_url)
        return self


class DecisionRequest(Strict):
    """A body of POST /decisions."""

    state: State | None = None
    messages: Annotated[list[Turn], Items(MAX_MESSAGES, least=1)] | None = None
    questions: Questions | None = None
    preset: str | None = None
    model: str | None = None
    images: Annotated[list[Image], Items(DECISION_IMAGES)] = []
    policy: Policy = Policy()
    order: Literal["source", "both"] = "source"
    request_id: str | None = None

    @model_validator(mode="after")
    def _check(self) -> DecisionRequest:
        for field, alternative in (("state", "messages"), ("questions", "preset")):
            present = [name for name in (field, alternative) if getattr(self, name) is not None]
            if len(present) != 1:
                raise ValueError(f"send exactly one of `{field}` and `{alternative}`; {len(present) or 'none'} came")
        # Of a conversation, only the contents count against the limit.
        text = self.text if self.messages is None else "".join(turn.content for turn in self.messages)
        check_state(text)
        return self

    def native(self) -> DecisionRequest:
        return self

    def render(self, result: DecisionResult) -> DecisionReply:
        model = result.model
        reply: DecisionReply = {
            "id": result.id,
            "object": "decision",
            "status": "completed",
            "created": result.created,
            "model": {
                "id": model.id,
                "runtime": model.runtime,
                "operator": result.operator.name,
                "country": result.operator.country,
                "via": model.runtime_via,
            },
            "answers": result.answers,
            "policy": {"mode": self.policy.mode, "threshold": self.policy.threshold},
            "usage": usage(result.readings, len(result.answers)),
            "timing_ms": timing_ms(result.readings, result.total_s),
        }
        if result.preset is not None:
            reply["preset"] = {"id": result.preset.id, "version": result.preset.version}
        if self.request_id is not None:
            reply["request_id"] = self.request_id
        return reply

    @property
    def text(self) -> str:
        """Text to judge, as the model reads it."""
        if self.messages is not None:
            return "\n\n".join(f"{turn.role}: {turn.content}" for turn in self.messages)
        return state_text("" if self.state is None else self.state)

    @property
    def addresses(self) -> tuple[str, ...]:
        """`data:` addresses of the images."""
        return tuple(image.data_url for image in self.images)


_QUESTION: TypeAdapter[Question] = TypeAdapter(Question)


def translated(
    text: str, addresses: Sequence[str], questions: Iterable[tuple[int | str, dict[str, Any]]], model: str | None
) -> DecisionRequest:
    """Returns a decision of another wire. `questions` are those of this wire by name, in source order.

    Raises ValueError or an ApiError for what this wire refuses, too.
    """
    check_state(text)
    if len(addresses) > DECISION_IMAGES:
        raise ValueError(f"{len(addresses)} images were sent; at most {DECISION_IMAGES} are allowed")
    images = [Image.model_construct(data_url=check_image(address)) for address in addresses]
    valid: dict[str, Question] = {}
    for name, question in questions:
        try:
            valid[f"{name}"] = _QUESTION.validate_python(question)
        except ValidationError as error:
            raise explain(error, question, ("questions", name)) from None
    return DecisionRequest.model_construct(state=text, questions=valid, model=model, images=images)


class DecisionWire(Protocol):
    """A validated body of an API for decisions."""

    def native(self) -> DecisionRequest:
        """Returns the decision that the body requests."""

    def render(self, result: DecisionResult) -> Any:
        """Returns the reply in the shape of the same API, as JSON values."""


class Runtime(TypedDict):
    """Model that answered: its operator, its country, and the method by which it is read."""

    id: str
    runtime: str
    operator: str
    country: str
    via: str


class PresetVersion(TypedDict):
    """Pack that the questions come from."""

    id: str
    version: str


class AppliedPolicy(TypedDict):
    """Policy that was applied."""

    mode: Literal["review_only", "threshold"]
    threshold: float | None


class DecisionUsage(TypedDict):
    """Usage of a decision, which generates no text. A question that is read in both orders is two `forward_passes`.

    `encoder_windows` counts the pieces of text that an encoder read, if the model is one.
    """

    input_tokens: int
    output_tokens: int
    evaluated_questions: int
    forward_passes: int
    encoder_windows: NotRequired[int]


class DecisionTimes(TypedDict):
    """Times in milliseconds. Questions run as one batch, so `inference_sum` may be longer than `total`."""

    total: float
    inference_max: float
    inference_sum: float


class DecisionReply(TypedDict):
    """Probabilities over the allowed options, by the name of each question."""

    id: str
    object: Literal["decision"]
    status: Literal["completed"]
    created: int
    model: Runtime
    preset: NotRequired[PresetVersion]
    answers: dict[str, Answer]
    policy: AppliedPolicy
    usage: DecisionUsage
    timing_ms: DecisionTimes
    request_id: NotRequired[str]


def usage(readings: Readings, questions: int) -> DecisionUsage:
    """Returns the `usage` of a result."""
    counts: DecisionUsage = {
        "input_tokens": readings.input_tokens,
        "output_tokens": 0,
        "evaluated_questions": questions,
        "forward_passes": len(readings.reads),
    }
    if readings.windows is not None:
        counts["encoder_windows"] = readings.windows
    return counts


def timing_ms(readings: Readings, total_s: float) -> DecisionTimes:
    """Returns the `timing_ms` of a result."""
    spent_s = [reading.inference_s for reading in readings.reads]
    return {
        "total": round(total_s * 1000, 3),
        "inference_max": round(max(spent_s) * 1000, 3),
        "inference_sum": round(math.fsum(spent_s) * 1000, 3),
    }


def shape_of(data: Any) -> str:
    """Returns the tag of the wire on which a body of POST /decisions came."""
    is_openai = isinstance(data, dict) and "input" in data and isinstance(data.get("questions"), list)
    return "(OpenAI)" if is_openai else "(native)"
