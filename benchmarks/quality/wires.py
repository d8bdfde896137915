"""Whether plain questions about easy texts are answered plainly, in the shapes of other APIs.

    python -m benchmarks.quality wires

`benchmarks/quality/examples/easy.toml` has 34 texts. Each is asked what it is (a choice of described options), and of
each option whether it holds: as a statement and as a question, in which no option is described. A true statement and a
false one about the same text have to be told apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tomllib
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import configs
import models
from contract.body import parse
from contract.catalog import Catalog, DecisionModel
from contract.decisions.answers import to_answers
from contract.decisions.decision import DecisionResult
from contract.decisions.engine import DecisionEngine, DecisionJob
from contract.decisions.native import DecisionWire
from contract.decisions.openai import OpenAIDecisionRequest
from contract.decisions.systemone import SystemOneRequest

FILE = Path(__file__).parent / "examples/easy.toml"
APART = 0.2
"""So much more likely has a true statement to be than a false one about the same text."""
FORMS = ("statement", "question")


@dataclass(slots=True)
class Tally:
    """What came back over one wire. `pairs` are the probabilities of a true and a false statement, by form."""

    chosen: list[bool] = field(default_factory=list)
    pairs: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Takes none."""


def run(_options: argparse.Namespace) -> None:
    catalog = configs.load("embedded")
    print(table(asyncio.run(_tallies(catalog, catalog.decisions["decision-v1"]))))


async def _tallies(catalog: Catalog, model: DecisionModel) -> dict[str, Tally]:
    tallies: dict[str, Tally] = defaultdict(Tally)
    with closing(models.load(model)) as scorer:
        await scorer.measure(catalog.presets.values())
        for group in tomllib.loads(FILE.read_text("utf-8")).values():
            for state, expected in group["texts"].items():
                for name, wire in (("OpenAI", openai(state, group)), ("System One", system_one(state, group))):
                    replies = (await _reply(catalog, model, scorer, wire))["answers"]
                    results = replies if isinstance(replies, list) else list(replies.values())
                    _count(tallies[name], group, expected, results)
    return tallies


def openai(state: str, group: dict[str, Any]) -> DecisionWire:
    """What a client sends in OpenAI's shape: the choice, then each option in each form."""
    options = group["options"].items()
    choices = [{"value": name, "description": option["description"]} for name, option in options]
    asked = [{"type": "choice", "instructions": group["instructions"], "choices": choices}]
    asked += [{"type": "predicate", "instructions": option[form]} for form in FORMS for _, option in options]
    return parse(OpenAIDecisionRequest, json.dumps({"input": state, "questions": asked}).encode())


def system_one(state: str, group: dict[str, Any]) -> DecisionWire:
    """The same in the shape of System One."""
    options = group["options"].items()
    criteria = {name: option["description"] for name, option in options}
    asked = {"choice": {"type": "choice", "instructions": group["instructions"], "criteria": criteria}}
    for form in FORMS:
        asked |= {f"{form} {name}": {"type": "noul", "instructions": option[form]} for name, option in options}
    return parse(SystemOneRequest, json.dumps({"state": state, "questions": asked}).encode())


async def _reply(catalog: Catalog, model: DecisionModel, scorer: DecisionEngine, wire: DecisionWire) -> Any:
    decision = wire.native()
    questions = decision.questions or {}
    readings = await scorer.decide(DecisionJob(decision.text, tuple(questions.values())))
    results = to_answers(questions, readings, decision.policy, "source")
    operator = catalog.operator
    return wire.render(DecisionResult("dec_0", 0, model, operator, None, questions, results, readings, total_s=0.0))


def _count(tally: Tally, group: dict[str, Any], expected: str, results: list[dict[str, Any]]) -> None:
    names = list(group["options"])
    tally.chosen.append(results[0]["choice"] == expected)
    probabilities = [answer["probability"] if "probability" in answer else answer["noul"] for answer in results[1:]]
    for index, form in enumerate(FORMS):
        likely = dict(zip(names, probabilities[index * len(names) :], strict=False))
        tally.pairs[form] += [(likely[expected], likely[name]) for name in names if name != expected]


def table(tallies: dict[str, Tally]) -> str:
    lines = [
        f"| wire | asked as | right | true above false by more than {APART} | equal | false above true |",
        "|---|---|---|---|---|---|",
    ]
    for wire, tally in tallies.items():
        lines.append(f"| {wire} | choice | {sum(tally.chosen)} of {len(tally.chosen)} | - | - | - |")
        for form, pairs in tally.pairs.items():
            apart, equal, wrong = (
                sum(true - false > APART for true, false in pairs),
                sum(abs(true - false) < 1e-6 for true, false in pairs),
                sum(false - true >= 1e-6 for true, false in pairs),
            )
            right = sum((true > 0.5) + (false < 0.5) for true, false in pairs)
            lines.append(
                f"| {wire} | {form} | {right} of {2 * len(pairs)} | {apart} of {len(pairs)} | {equal} | {wrong} |"
            )
    return "\n".join(lines)
