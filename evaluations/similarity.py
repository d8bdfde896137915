"""Fits the two scales of the similarity reader to a development set, and says how right it is there.

    python -m evaluations similarity

`evaluations/examples/development.jsonl` was written for this: 171 texts and 364 questions by one author, a third of
them questions of presets. No text of it is in `decisions.jsonl`, which the scales never see. Each group of texts with
the same questions is judged with scales that were fitted to all others.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import configs
from contract.catalog import Catalog
from contract.decisions.engine import DecisionJob
from evaluations.examples import load
from models.decisions.similarity import EXAMPLE_SCALE, OPTION_SCALE, Likeness, SimilarityScorer
from models.weights import store as weights

FILE = Path(__file__).parent / "examples/development.jsonl"
MODEL = "decision-v1"
STEPS, RATE = 400, 20.0


@dataclass(frozen=True, slots=True)
class Compared:
    """A question of a text: how like the text its options are, and the place of the right one."""

    group: str
    likeness: Likeness
    expected: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Takes none."""


def run(_options: argparse.Namespace) -> None:
    """Prints the scales and the share of right answers."""
    found = asyncio.run(_compared(configs.load("embedded")))
    groups: dict[str, list[Compared]] = defaultdict(list)
    for one in found:
        groups[one.group].append(one)
    right = 0
    for group, judged in groups.items():
        scales = fitted([one for one in found if one.group != group])
        right += sum(_best(one, scales) == one.expected for one in judged)
    option, example = fitted(found)
    print(f"fitted scales: options {option:.1f}, examples {example:.1f}; in use: {OPTION_SCALE}, {EXAMPLE_SCALE}")
    print(f"right: {right} of {len(found)} ({right / len(found):.0%})")


async def _compared(catalog: Catalog) -> list[Compared]:
    model = catalog.decisions[MODEL]
    assert model.serving
    assert model.serving.weights
    scorer = SimilarityScorer(model, weights.ensure(model.serving.weights))
    try:
        await scorer.prepare(list(catalog.presets.values()))
        found = []
        for case in load(catalog.presets, FILE):
            group = f"{case.pack} {sorted(case.questions)}"
            likenesses, _ = await scorer.compare(DecisionJob(case.state, tuple(case.questions.values())))
            expected = [case.expected[name] for name in case.questions]
            found += [Compared(group, *pair) for pair in zip(likenesses, expected, strict=True)]
    finally:
        scorer.close()
    return found


def fitted(found: list[Compared]) -> tuple[float, float]:
    """The scales under which the right answers are most likely, by gradient descent: the loss has one minimum."""
    import numpy as np

    scales = np.array([10.0, 10.0])
    for _ in range(STEPS):
        slope = np.zeros(2)
        for one in found:
            features = _features(one)
            weighed = np.exp(features @ scales - (features @ scales).max())
            slope += features.T @ (weighed / weighed.sum()) - features[one.expected]
        scales -= RATE * slope / len(found)
    return float(scales[0]), float(scales[1])


def _best(one: Compared, scales: tuple[float, float]) -> int:
    return int((_features(one) @ scales).argmax())


def _features(one: Compared) -> Any:
    import numpy as np

    return np.stack([one.likeness.options, one.likeness.examples], axis=1)
