"""Conversion of readings to answers: the mathematics of decisions, policy and abstention.

    expand_orders(questions, order)     questions for the engine: a choice in `both` orders twice
    merge_orders(questions, readings)   one reading for each question, the mean of both orders
    distribution(reading)               probabilities over the options of one question
    to_answers(questions, readings)     one answer for each question, by its name

`probabilities` is the distribution over the given options, not a probability of being right. `label_mass` is the share
of the model's whole distribution that falls on the options; a temperature never changes it. Models favour some places
in a list, so a choice may be read in both orders; each further read is a forward pass of its own, and billed as one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from contract.decisions.engine import Reading, Readings
from contract.decisions.questions import BinaryQuestion, ChoiceQuestion, Policy, Question
from contract.errors import UPSTREAM_ERROR
from contract.limits import LOW_LABEL_MASS

UNDECIDED = frozenset({"unclear", "other", "unknown"})
"""Option ids which mean that no other option fits."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Probabilities over the options of one question, in source order; they add up to 1."""

    probabilities: tuple[float, ...]
    label_mass: float
    missing: tuple[int, ...]

    @property
    def best(self) -> int:
        """Index of the most likely option; the first in source order among equals."""
        return max(range(len(self.probabilities)), key=self.probabilities.__getitem__)

    @property
    def normalized_entropy(self) -> float:
        """Entropy on a scale from 0 (one option has all probability) to 1 (all options are equally likely)."""
        entropy = -sum(p * math.log(p) for p in self.probabilities if p > 0)
        return min(1.0, max(0.0, entropy / math.log(len(self.probabilities))))


def distribution(reading: Reading, temperature: float) -> Distribution:
    """Returns the distribution of a reading. Raises UPSTREAM_ERROR for no probabilities, or one that is no number."""
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
    """Calibration of the probabilities: it is not measured yet whether they match how often answers are right."""

    status: Literal["uncalibrated"]


class Diagnostics(TypedDict):
    """Share of the model's whole distribution that falls on the options, and the options without a probability."""

    label_mass: float
    low_label_mass: bool
    missing_labels: list[str]


class OrderDifference(TypedDict):
    """Difference between the two orders in which the options of a choice were read."""

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
    """Answer to a choice; `value` is the id of the option. Choices that are read in both orders have `order`."""

    type: Literal["choice"]
    value: str


class ScoreAnswer(_Common):
    """Answer to a score; `value` is the most likely level, from 0."""

    type: Literal["score"]
    value: int
    expected_index: float
    normalized_score: float


class BinaryAnswer(_Common):
    """Answer to a question that is true or false."""

    type: Literal["binary"]
    value: bool
    probability_true: float


Answer = ChoiceAnswer | ScoreAnswer | BinaryAnswer


def answer(question: Question, reading: Reading, temperature: float, policy: Policy) -> Answer:
    """Returns the answer to a question: the fields of its type, then those that all types share."""
    spread = distribution(reading, temperature)
    common = _common(question, spread, policy)
    if isinstance(question, ChoiceQuestion):
        return {"type": "choice", "value": question.labels[spread.best], **common}
    if isinstance(question, BinaryQuestion):
        return {"type": "binary", "value": spread.best == 0, "probability_true": spread.probabilities[0], **common}
    expected = math.fsum(index * p for index, p in enumerate(spread.probabilities))
    return {
        "type": "score",
        "value": spread.best,
        "expected_index": expected,
        "normalized_score": min(1.0, expected / (len(question.levels) - 1)),
        **common,
    }


def _common(question: Question, spread: Distribution, policy: Policy) -> _Common:
    labels = question.labels
    reasons = abstain_reasons(question, spread, policy)
    return {
        "probabilities": dict(zip(labels, spread.probabilities, strict=True)),
        "max_probability": spread.probabilities[spread.best],
        "normalized_entropy": spread.normalized_entropy,
        "calibration": {"status": "uncalibrated"},
        "abstain": any(reason in ABSTAINING for reason in reasons),
        "abstain_reasons": reasons,
        "diagnostics": {
            "label_mass": spread.label_mass,
            "low_label_mass": spread.label_mass < LOW_LABEL_MASS,
            "missing_labels": [labels[index] for index in spread.missing],
        },
    }


ABSTAINING = frozenset({"review_only_policy", "below_threshold", "low_label_mass", "undecided_option"})
"""Reasons that withhold an answer. `calibration_unavailable` always applies and withholds nothing."""


def abstain_reasons(question: Question, spread: Distribution, policy: Policy) -> list[str]:
    """Returns every reason that applies, under any policy."""
    is_undecided = isinstance(question, ChoiceQuestion) and question.labels[spread.best].strip().lower() in UNDECIDED
    reasons = {
        "review_only_policy": policy.mode == "review_only",
        "below_threshold": policy.threshold is not None and spread.probabilities[spread.best] < policy.threshold,
        "low_label_mass": spread.label_mass < LOW_LABEL_MASS,
        "undecided_option": is_undecided,
        "calibration_unavailable": True,
    }
    return [reason for reason, holds in reasons.items() if holds]


Order = Literal["source", "both"]


def expand_orders(questions: Mapping[str, Question], order: Order) -> tuple[Question, ...]:
    """Returns the questions for the engine.

    `both` adds each choice with its options reversed. The order of levels, and of true and false, has a meaning.
    """
    turned = [
        question.model_copy(update={"options": question.options[::-1]})
        for question in questions.values()
        if order == "both" and isinstance(question, ChoiceQuestion)
    ]
    return (*questions.values(), *turned)


def to_answers(
    questions: Mapping[str, Question], readings: Readings, policy: Policy, order: Order
) -> dict[str, Answer]:
    """Returns answers by the name of their question, in source order, with the `order` of those read in both orders.

    Raises UPSTREAM_ERROR if the runtime gave no probability.
    """
    readings, differences = (readings, {}) if order == "source" else merge_orders(questions, readings)
    by_name = {
        name: answer(question, reading, readings.temperature, policy)
        for (name, question), reading in zip(questions.items(), readings.reads, strict=True)
    }
    for name, difference in differences.items():
        by_name[name]["order"] = difference
    return by_name


def merge_orders(questions: Mapping[str, Question], readings: Readings) -> tuple[Readings, dict[str, OrderDifference]]:
    """Returns one reading for each question, the mean of both orders, and the differences between the orders by name.

    Raises UPSTREAM_ERROR if the runtime gave no probability.
    """
    reads = list(readings.reads[: len(questions)])
    turned = iter(readings.reads[len(questions) :])
    differences: dict[str, OrderDifference] = {}
    for index, (name, question) in enumerate(questions.items()):
        if isinstance(question, ChoiceQuestion):
            back = next(turned)
            back = replace(back, logprobs=back.logprobs[::-1])
            differences[name] = _difference(reads[index], back, readings.temperature)
            reads[index] = _mean(reads[index], back)
    return replace(readings, reads=tuple(reads)), differences


def _difference(first: Reading, second: Reading, temperature: float) -> OrderDifference:
    first_spread, second_spread = distribution(first, temperature), distribution(second, temperature)
    apart = max(abs(p - q) for p, q in zip(first_spread.probabilities, second_spread.probabilities, strict=True))
    return {"max_difference": apart, "same_value": first_spread.best == second_spread.best}


def _mean(first: Reading, second: Reading) -> Reading:
    """Returns the mean probability of each label; a label that only one order returned counts half."""
    pairs = zip(first.logprobs, second.logprobs, strict=True)
    sums = [sum(math.exp(value) for value in pair if value is not None) for pair in pairs]
    means = tuple(math.log(total / 2) if total > 0 else None for total in sums)
    return Reading(means, first.inference_s + second.inference_s)
