"""Our own wire of decisions: POST /decisions.

DecisionRequest                       a validated body
|- state or messages                what is judged
|- questions or preset              by name, in source order
`- images                           `data:` addresses only
DecisionReply                         the reply
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Discriminator, RootModel, Tag, model_validator
from typing_extensions import TypedDict

from contract.base import Items, Strict
from contract.decisions.answers import Answer
from contract.decisions.decision import Decision, DecisionResult, check_image, check_state
from contract.decisions.engine import Readings
from contract.decisions.openai import OpenAIDecisionRequest
from contract.decisions.questions import Policy, Questions, State, state_text
from contract.limits import DECISION_IMAGES, MAX_MESSAGES


class Turn(Strict):
    """A turn of a conversation that is judged."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class Image(Strict):
    """An image in the body itself: nothing is ever fetched for a client."""

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
        # Of a conversation, only what was said counts against the limit.
        text = self._text() if self.messages is None else "".join(turn.content for turn in self.messages)
        check_state(text)
        return self

    def decision(self) -> Decision:
        return Decision(
            state=self._text(),
            questions=self.questions or {},
            preset=self.preset,
            model=self.model,
            images=tuple(image.data_url for image in self.images),
            policy=self.policy,
            order=self.order,
            request_id=self.request_id,
        )

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

    def _text(self) -> str:
        if self.messages is not None:
            return "\n\n".join(f"{turn.role}: {turn.content}" for turn in self.messages)
        return state_text("" if self.state is None else self.state)


class Runtime(TypedDict):
    """The model that answered: who runs it, where, and how it is read."""

    id: str
    runtime: str
    operator: str
    country: str
    via: str


class PresetVersion(TypedDict):
    """The pack whose questions were asked."""

    id: str
    version: str


class AppliedPolicy(TypedDict):
    """The policy that held."""

    mode: Literal["review_only", "threshold"]
    threshold: float | None


class DecisionUsage(TypedDict):
    """No text is generated. `forward_passes` counts questions, one that is read in both orders twice.

    `encoder_windows` are the pieces of text that an encoder read for them, where one reads.
    """

    input_tokens: int
    output_tokens: int
    evaluated_questions: int
    forward_passes: int
    encoder_windows: NotRequired[int]


class DecisionTimes(TypedDict):
    """Milliseconds. Questions run as one batch, so `inference_sum` may be longer than `total`."""

    total: float
    inference_max: float
    inference_sum: float


class DecisionReply(TypedDict):
    """Probabilities over the options that were allowed, by the name of each question."""

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
    """`usage` of the result."""
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
    """`timing_ms` of the result."""
    spent_s = [reading.inference_s for reading in readings.reads]
    return {
        "total": round(total_s * 1000, 3),
        "inference_max": round(max(spent_s) * 1000, 3),
        "inference_sum": round(math.fsum(spent_s) * 1000, 3),
    }


def _shape(data: Any) -> str:
    is_openai = isinstance(data, dict) and "input" in data and isinstance(data.get("questions"), list)
    return "in OpenAI's shape" if is_openai else "in our own"


class DecisionBody(
    RootModel[
        Annotated[
            Annotated[DecisionRequest, Tag("in our own")] | Annotated[OpenAIDecisionRequest, Tag("in OpenAI's shape")],
            Discriminator(_shape),
        ]
    ]
):
    """A body of POST /decisions: our own, or one with `input` in OpenAI's shape."""

    # Tags are no identifiers, so that no error names them.
