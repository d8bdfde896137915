"""Job, readings and protocol of a decision scorer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from contract.base import Frozen
from contract.catalog import DecisionModel
from contract.catalog.base import IMAGE_TOKENS, likely_tokens, most_tokens, utf8_bytes
from contract.decisions.questions import Question


@dataclass(frozen=True, slots=True)
class DecisionJob:
    """A state, and the questions to read about it.

    Attributes:
        state: text to judge.
        questions: 1 to 16 questions, and each choice once more if it is read in both orders.
        images: up to two `data:` addresses, for a model that reads images.
        owner: organisation that the work is for; owners take turns, and share no cache.
    """

    state: str
    questions: tuple[Question, ...]
    images: tuple[str, ...] = ()
    owner: str = ""

    def most_input_tokens(self, model: DecisionModel) -> int:
        """Returns an upper bound of the tokens that are read. An image may fill the window, like any prompt."""
        question_texts = (question.model_dump_json() for question in self.questions)
        most = most_tokens(utf8_bytes((self.state, *question_texts)), len(self.questions))
        return most + model.context_window if self.images else most

    def likely_input_tokens(self) -> int:
        question_texts = (question.model_dump_json() for question in self.questions)
        return likely_tokens((self.state, *question_texts)) + IMAGE_TOKENS * len(self.images)


@dataclass(frozen=True, slots=True)
class Reading:
    """Reading of one question.

    Attributes:
        logprobs: natural logarithm of the probability of each label in source order, among all possible outputs of the
            model; None where the runtime gave none.
        inference_s: seconds from passing the question to the engine to its answer.
    """

    logprobs: tuple[float | None, ...]
    inference_s: float


@dataclass(frozen=True, slots=True)
class Readings:
    """Readings of one job, in the order of its questions.

    Attributes:
        input_tokens: tokens of the state once, and of each question.
        temperature: divisor of the log-probabilities; above 1 it makes distributions flatter.
        windows: windows of text that an encoder read; None if no encoder reads.
    """

    reads: tuple[Reading, ...]
    input_tokens: int
    temperature: float = 1.0
    windows: int | None = None


class Measurement(Frozen):
    """Measurement of a runtime on the examples of the presets, which it needs before it may answer.

    Attributes:
        measured_at: Unix time.
        fingerprint: hash of weights, wording, options and examples; a change of it requires a new measurement.
        prompt_version: version of the wording around state and questions.
        questions: number of labelled answers.
        accuracy: share of questions with the expected option as the most likely one.
        label_mass: mean probability on the allowed options.
        calibration_error: expected calibration error in ten bins, each half judged with the temperature of the other.
        temperature: temperature in use; 1 if the readings are used unchanged.
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
    """A decision scorer: an adapter in `models.decisions`, or its replica. The gate calls its methods by name."""

    async def decide(self, job: DecisionJob) -> Readings:
        """Returns a reading for each question, in order. Raises RUNTIME_UNAVAILABLE before the runtime is measured."""

    async def measured(self, job: None = None) -> Measurement | None:
        """Returns the measurement of the runtime, or None before there is one. `job` is not used."""
