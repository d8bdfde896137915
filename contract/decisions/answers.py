"""From what a model read to answers: the mathematics of decisions, policy and abstention. Spec 2 (Decision result).

    Reading     log-probabilities of the allowed labels of one question, over the whole vocabulary
    Readings    those of one request, with the runtime's temperature and what to bill
    result()    the body of the reply

`probabilities` is the distribution over the given options, not a probability of being right. `label_mass` is what of
the model's whole distribution sat on the options; a temperature never touches it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contract.decisions.request import BinaryQuestion, ChoiceQuestion, Policy, Question, ScoreQuestion
from contract.errors import UPSTREAM_ERROR
from contract.limits import LOW_LABEL_MASS

UNDECIDED = frozenset({"unclear", "other", "unknown"})
"""Option ids that say that the options do not fit."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One forward pass.

    Attributes:
        logprobs: natural logarithm of each label's probability in source order; None where the runtime told none.
        inference_s: from handing the question to the engine to its answer.
    """

    logprobs: tuple[float | None, ...]
    inference_s: float


@dataclass(frozen=True, slots=True)
class Readings:
    """What a scorer gives back for one request, in the order of its questions.

    Attributes:
        input_tokens: tokens of the state once, and of each question.
        temperature: divides the log-probabilities; above 1 makes distributions finer.
    """

    reads: tuple[Reading, ...]
    input_tokens: int
    temperature: float = 1.0


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
    """Raises UPSTREAM_ERROR where the runtime told nothing that could be normalised."""
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


def answer(question: Question, reading: Reading, temperature: float, policy: Policy) -> dict[str, Any]:
    """One answer of the spec: what its type says, then what all have in common."""
    found = distribution(reading, temperature)
    labels = question.labels
    reasons = abstain_reasons(question, found, policy)
    return {
        "type": question.type,
        **_value(question, found),
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


def _value(question: Question, found: Distribution) -> dict[str, Any]:
    if isinstance(question, ChoiceQuestion):
        return {"value": question.labels[found.best]}
    if isinstance(question, BinaryQuestion):
        return {"value": found.best == 0, "probability_true": found.probabilities[0]}
    assert isinstance(question, ScoreQuestion)
    expected = math.fsum(index * p for index, p in enumerate(found.probabilities))
    return {
        "value": found.best,
        "expected_index": expected,
        "normalized_score": min(1.0, expected / (len(question.levels) - 1)),
    }


ABSTAINING = frozenset({"review_only_policy", "below_threshold", "low_label_mass", "undecided_option"})
"""Reasons that withhold an answer. `calibration_unavailable` is always told, and withholds nothing by itself."""


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


def answers(questions: Mapping[str, Question], readings: Readings, policy: Policy) -> dict[str, Any]:
    """Every answer by the name of its question, in source order."""
    return {
        name: answer(question, reading, readings.temperature, policy)
        for (name, question), reading in zip(questions.items(), readings.reads, strict=True)
    }


def usage(readings: Readings, questions: int) -> dict[str, int]:
    """`usage` of the result. No text is generated; each read is one forward pass."""
    return {
        "input_tokens": readings.input_tokens,
        "output_tokens": 0,
        "evaluated_questions": questions,
        "forward_passes": len(readings.reads),
    }


def timing_ms(reads: Sequence[Reading], total_s: float) -> dict[str, float]:
    """`timing_ms` of the result. Questions run as one batch, so `inference_sum` may be longer than `total`."""
    spent = [reading.inference_s for reading in reads]
    return {
        "total": round(total_s * 1000, 3),
        "inference_max": round(max(spent) * 1000, 3),
        "inference_sum": round(math.fsum(spent) * 1000, 3),
    }
