"""Asking a choice in both orders of its options: an extension, because models favour some places in a list.

    both_orders(questions)              every question, then each choice again with its options reversed
    folded(questions, readings)         one reading for each question, and how far the two orders were apart

    posed(questions, order)             what the engine is asked, in one order or in both
    answered(questions, readings, ...)  every answer, and of both orders what they changed

The folded probabilities are the mean of both reads. Each further read is a forward pass of its own, and billed as one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from contract.decisions.answers import Answer, OrderDifference, answers, distribution
from contract.decisions.engine import Reading, Readings
from contract.decisions.policy import Policy
from contract.decisions.questions import ChoiceQuestion, Question

Order = Literal["source", "both"]


def expand_orders(questions: Mapping[str, Question], order: Order) -> tuple[Question, ...]:
    """What the engine is asked."""
    return tuple(questions.values()) if order == "source" else both_orders(questions)


def to_answers(
    questions: Mapping[str, Question], readings: Readings, policy: Policy, order: Order
) -> dict[str, Answer]:
    """Answers by name; those that were read in both orders say what the order changed.

    Raises UPSTREAM_ERROR where no probability came from the runtime.
    """
    if order == "source":
        return answers(questions, readings, policy)
    readings, differences = merge_orders(questions, readings)
    found = answers(questions, readings, policy)
    for name, difference in differences.items():
        found[name]["order"] = difference
    return found


def both_orders(questions: Mapping[str, Question]) -> tuple[Question, ...]:
    """What the engine is asked. Levels and yes or no have an order of their own, which stays."""
    turned = [
        question.model_copy(update={"options": question.options[::-1]})
        for question in questions.values()
        if isinstance(question, ChoiceQuestion)
    ]
    return (*questions.values(), *turned)


def merge_orders(questions: Mapping[str, Question], readings: Readings) -> tuple[Readings, dict[str, OrderDifference]]:
    """The readings of `both_orders` as one for each question, and by name what the order changed.

    Raises UPSTREAM_ERROR where no probability came from the runtime.
    """
    reads = list(readings.reads[: len(questions)])
    turned = iter(readings.reads[len(questions) :])
    found: dict[str, OrderDifference] = {}
    for index, (name, question) in enumerate(questions.items()):
        if isinstance(question, ChoiceQuestion):
            back = next(turned)
            back = replace(back, logprobs=back.logprobs[::-1])
            found[name] = _difference(reads[index], back, readings.temperature)
            reads[index] = _mean(reads[index], back)
    return replace(readings, reads=tuple(reads)), found


def _difference(one: Reading, other: Reading, temperature: float) -> OrderDifference:
    some, others = distribution(one, temperature), distribution(other, temperature)
    apart = max(abs(p - q) for p, q in zip(some.probabilities, others.probabilities, strict=True))
    return {"max_difference": apart, "same_value": some.best == others.best}


def _mean(one: Reading, other: Reading) -> Reading:
    """The mean probability of each label; one that came in one order only counts half."""
    pairs = zip(one.logprobs, other.logprobs, strict=True)
    sums = [sum(math.exp(value) for value in pair if value is not None) for pair in pairs]
    means = tuple(math.log(total / 2) if total > 0 else None for total in sums)
    return Reading(means, one.inference_s + other.inference_s)
