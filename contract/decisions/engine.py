"""What a decision scorer is asked and what it gives back: the job and the protocol of decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from contract.base import Frozen
from contract.catalog import DecisionModel
from contract.catalog.base import IMAGE_TOKENS, likely_tokens, most_tokens, utf8_bytes
from contract.decisions.questions import Question


@dataclass(frozen=True, slots=True)
class DecisionJob:
    """A state and what to read about it.

    Attributes:
        state: the text that is judged.
        questions: 1 to 16, and each choice once more where it is read in both orders.
        images: up to two `data:` addresses, for a model that sees.
        owner: for whom; owners take turns, and share no cache.
    """

    state: str
    questions: tuple[Question, ...]
    images: tuple[str, ...] = ()
    owner: str = ""

    def most_input_tokens(self, model: DecisionModel) -> int:
        """An upper bound of the tokens that are read. An image may be as long as the window, like any prompt."""
        question_texts = (question.model_dump_json() for question in self.questions)
        most = most_tokens(utf8_bytes((self.state, *question_texts)), len(self.questions))
        return most + model.context_window if self.images else most

    def likely_input_tokens(self) -> int:
        question_texts = (question.model_dump_json() for question in self.questions)
        return likely_tokens((self.state, *question_texts)) + IMAGE_TOKENS * len(self.images)


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read about one question.

    Attributes:
        logprobs: natural logarithm of each label's probability in source order, of all that the model could have
            said; None where the runtime gave none.
        inference_s: from handing the question to the engine to its answer.
    """

    logprobs: tuple[float | None, ...]
    inference_s: float


@dataclass(frozen=True, slots=True)
class Readings:
    """What a scorer gives back for one job, in the order of its questions.

    Attributes:
        input_tokens: tokens of the state once, and of each question.
        temperature: divides the log-probabilities; above 1 makes distributions finer.
        windows: of texts that an encoder read; None where no encoder reads.
    """

    reads: tuple[Reading, ...]
    input_tokens: int
    temperature: float = 1.0
    windows: int | None = None


class Measurement(Frozen):
    """A runtime on the examples of the presets: what is known of it before it may answer.

    Attributes:
        measured_at: Unix time.
        fingerprint: of weights, wording, options and examples; another one needs another measurement.
        prompt_version: of the wording around state and questions.
        questions: how many labelled answers went in.
        accuracy: share of questions whose most likely option was the expected one.
        label_mass: mean probability on the allowed options.
        calibration_error: expected calibration error in ten bins, each half judged with the other half's temperature.
        temperature: in use; 1 where the model is read as it is.
        latency_ms: median time of one question with its state.
    """

    measured_at: int
    fingerprint: str
    prompt_version: str
    questions: int
    accuracy: float
    label_mass: float
    calibration_error: float
    temperature: float
    latency_ms: float


class DecisionEngine(Protocol):
    """A decision scorer, wherever it runs: an adapter in `models.decisions`, its replica, or the gate before it."""

    async def decide(self, job: DecisionJob) -> Readings:
        """A reading for each question, in order. Raises RUNTIME_UNAVAILABLE before the runtime is measured."""
        ...

    async def measured(self, job: None = None) -> Measurement | None:
        """The measurement under which it answers, once there is one. Its job says nothing."""
        ...
