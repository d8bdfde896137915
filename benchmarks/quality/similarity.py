"""Fits the scales of the similarity reader to a development set, and says how right it is there.

    python -m benchmarks.quality similarity

`benchmarks/quality/examples/development.jsonl` was written for this: 171 texts and 364 questions by one author, a third
of them questions of presets. No text of it is in `decisions.jsonl`, which the scales never see. Each group of texts
with the same questions is judged with scales that were fitted to all others. Yes-or-no questions are asked a second
time without their descriptions, as statements.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import configs
from benchmarks.quality.examples import load
from contract.catalog import Catalog
from contract.decisions.decision import FAILS, HOLDS
from contract.decisions.engine import DecisionJob
from contract.decisions.questions import BinaryQuestion, Question
from models.decisions.similarity import EXAMPLE_SCALE, OPTION_SCALE, STATEMENT_SCALE, Similarity, SimilarityScorer
from models.weights import store as weights

FILE = Path(__file__).parent / "examples/development.jsonl"
MODEL = "decision-v1"
STEPS, RATE = 400, 20.0


@dataclass(frozen=True, slots=True)
class Compared:
    """A question of a text: how like the text its options are, and the place of the right one."""

    kind: str
    group: str
    likeness: Similarity
    expected: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Takes none."""


def run(_options: argparse.Namespace) -> None:
    """Prints the scales and the share of right answers."""
    results = asyncio.run(_compared(configs.load("embedded")))
    groups: dict[str, list[Compared]] = defaultdict(list)
    for each in results:
        groups[each.group].append(each)
    right: dict[str, list[bool]] = defaultdict(list)
    for group, judged in groups.items():
        scales = fitted([each for each in results if each.group != group])
        for each in judged:
            right[each.kind].append(_best(each, scales) == each.expected)
    in_use = (OPTION_SCALE, EXAMPLE_SCALE, STATEMENT_SCALE)
    named = zip(("options", "examples", "statements"), fitted(results), in_use, strict=True)
    print("fitted scales (in use):", ", ".join(f"{name} {scale:.1f} ({used})" for name, scale, used in named))
    for kind, hits in right.items():
        print(f"{kind}: {sum(hits)} of {len(hits)} right ({sum(hits) / len(hits):.0%})")


async def _compared(catalog: Catalog) -> list[Compared]:
    model = catalog.decisions[MODEL]
    assert model.setup.weights
    with closing(SimilarityScorer(model, weights.ensure(model.setup.weights))) as scorer:
        await scorer.prepare(list(catalog.presets.values()))
        results = []
        for case in load(catalog.presets, FILE):
            group = f"{case.pack} {sorted(case.questions)}"
            asked: list[tuple[str, Question, int]] = [
                (question.type, question, case.expected[name]) for name, question in case.questions.items()
            ]
            asked += [("statement", bare(each), right) for _, each, right in asked if isinstance(each, BinaryQuestion)]
            likenesses, _ = await scorer.compare(DecisionJob(case.state, tuple(each for _, each, _ in asked)))
            results += [
                Compared(kind, group, likeness, right)
                for (kind, _, right), likeness in zip(asked, likenesses, strict=True)
            ]
    return results


def bare(question: BinaryQuestion) -> Question:
    """The same question as a client sends it who does not say what true and false mean."""
    return question.model_copy(update={"true_description": HOLDS, "false_description": FAILS})


def fitted(results: list[Compared]) -> tuple[float, ...]:
    """The scales under which the right answers are most likely, by gradient descent: the loss has one minimum."""
    import numpy as np

    scales = np.full(3, 10.0)
    for _ in range(STEPS):
        slope = np.zeros(3)
        for each in results:
            features = _features(each)
            weighed = np.exp(features @ scales - (features @ scales).max())
            slope += features.T @ (weighed / weighed.sum()) - features[each.expected]
        scales -= RATE * slope / len(results)
    return tuple(scales.tolist())


def _best(each: Compared, scales: tuple[float, ...]) -> int:
    return int((_features(each) @ scales).argmax())


def _features(each: Compared) -> Any:
    import numpy as np

    return np.stack([each.likeness.options, each.likeness.examples, each.likeness.statements], axis=1)
