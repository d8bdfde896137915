"""From what a model read to answers: the mathematics of decisions, policy and abstention. Spec 2 (Decision result).

    Reading -> distribution() -> Distribution      over the options of one question
            -> answers() -> Answer                 one for each question, by its name

`probabilities` is the distribution over the given options, not a probability of being right. `label_mass` is what of
the model's whole distribution sat on the options; a temperature never touches it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from contract.decisions.engine import Reading, Readings
from contract.decisions.policy import Policy
from contract.decisions.questions import BinaryQuestion, ChoiceQuestion, Question
from contract.errors import UPSTREAM_ERROR
from contract.limits import LOW_LABEL_MASS

UNDECIDED = frozenset({"unclear", "other", "unknown"})
"""Option ids that say that the options do not fit."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Probabilities over the options of one question, in source order; they add up to 1."""

    probabilities: tuple[float, ...]
    label_mass: float
    missing: tuple[int, ...]

    @property
    def best(self) -> int:
        """The most likely option; the first in source order among equals."""
        return max(range(len(self.probabilities)), key=self.probabilities.__getitem__)

    @property
    def normalized_entropy(self) -> float:
        """0 where all is on one option, 1 where all are alike."""
        entropy = -sum(p * math.log(p) for p in self.probabilities if p > 0)
        return min(1.0, max(0.0, entropy / math.log(len(self.probabilities))))


def distribution(reading: Reading, temperature: float) -> Distribution:
    """Raises UPSTREAM_ERROR where no probability came from the runtime, or one that is no number."""
    values = [-math.inf if logprob is None else logprob for logprob in reading.logprobs]
    highest = max(values)
    if highest == -math.inf or any(math.isnan(value) or value == math.inf for value in values):
        raise UPSTREAM_ERROR()
    weights = [math.exp((value - highest) / temperature) for value in values]
    total = math.fsum(weights)
    return Distribution(
        tuple(weight / total for weight in weights),
        min(1.0, math.fsum(math.exp(value) for value in values)),
        tuple(index for index, value in enumerate(values) if value == -math.inf),
    )


class Calibration(TypedDict):
    """Nobody has shown yet that the probabilities are right as often as they say."""

    status: Literal["uncalibrated"]


class Diagnostics(TypedDict):
    """What of the model's whole distribution sat on the options, and the options that it gave nothing."""

    label_mass: float
    low_label_mass: bool
    missing_labels: list[str]


class OrderDifference(TypedDict):
    """How far apart the two orders of a choice's options were."""

    max_difference: float
    same_value: bool


class _Common(TypedDict):
    probabilities: dict[str, float]
    max_probability: float
    normalized_entropy: float
    calibration: Calibration
    abstain: bool
    abstain_reasons: list[str]
    diagnostics: Diagnostics
    order: NotRequired[OrderDifference]


class ChoiceAnswer(_Common):
    """Of a choice; `value` is the option's id. Only choices are read in both orders, and then have `order`."""

    type: Literal["choice"]
    value: str


class ScoreAnswer(_Common):
    """Of a score; `value` is the most likely level, from 0."""

    type: Literal["score"]
    value: int
    expected_index: float
    normalized_score: float


class BinaryAnswer(_Common):
    """Of a question that is true or false."""

    type: Literal["binary"]
    value: bool
    probability_true: float


Answer = ChoiceAnswer | ScoreAnswer | BinaryAnswer


def answer(question: Question, reading: Reading, temperature: float, policy: Policy) -> Answer:
    """One answer of the spec: what its type says, then what all have in common."""
    found = distribution(reading, temperature)
    common = _common(question, found, policy)
    if isinstance(question, ChoiceQuestion):
        return {"type": "choice", "value": question.labels[found.best], **common}
    if isinstance(question, BinaryQuestion):
        return {"type": "binary", "value": found.best == 0, "probability_true": found.probabilities[0], **common}
    expected = math.fsum(index * p for index, p in enumerate(found.probabilities))
    return {
        "type": "score",
        "value": found.best,
        "expected_index": expected,
        "normalized_score": min(1.0, expected / (len(question.levels) - 1)),
        **common,
    }


def _common(question: Question, found: Distribution, policy: Policy) -> _Common:
    labels = question.labels
    reasons = abstain_reasons(question, found, policy)
    return {
        "probabilities": dict(zip(labels, found.probabilities, strict=True)),
        "max_probability": found.probabilities[found.best],
        "normalized_entropy": found.normalized_entropy,
        "calibration": {"status": "uncalibrated"},
        "abstain": any(reason in ABSTAINING for reason in reasons),
        "abstain_reasons": reasons,
        "diagnostics": {
            "label_mass": found.label_mass,
            "low_label_mass": found.label_mass < LOW_LABEL_MASS,
            "missing_labels": [labels[index] for index in found.missing],
        },
    }


ABSTAINING = frozenset({"review_only_policy", "below_threshold", "low_label_mass", "undecided_option"})
"""Reasons that withhold an answer. `calibration_unavailable` always holds and withholds nothing."""


def abstain_reasons(question: Question, found: Distribution, policy: Policy) -> list[str]:
    """Every reason that holds, whatever the policy makes of it."""
    is_undecided = isinstance(question, ChoiceQuestion) and question.labels[found.best].strip().lower() in UNDECIDED
    reasons = {
        "review_only_policy": policy.mode == "review_only",
        "below_threshold": policy.threshold is not None and found.probabilities[found.best] < policy.threshold,
        "low_label_mass": found.label_mass < LOW_LABEL_MASS,
        "undecided_option": is_undecided,
        "calibration_unavailable": True,
    }
    return [reason for reason, holds in reasons.items() if holds]


def answers(questions: Mapping[str, Question], readings: Readings, policy: Policy) -> dict[str, Answer]:
    """Every answer by the name of its question, in source order."""
    return {
        name: answer(question, reading, readings.temperature, policy)
        for (name, question), reading in zip(questions.items(), readings.reads, strict=True)
    }
