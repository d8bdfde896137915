"""How far the probabilities of one request move with what else the engine reads.

    python -m benchmarks.quality drift

The adapter on the embedded weights, without Ray and HTTP. A request of three questions is
read alone, again from the prefix cache, one question at a time, and in the middle of 31 others of one question, whose
states begin like its own. Drift is the largest difference of any probability, at temperature 1.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import closing

import configs
import models
from contract.decisions.answers import distribution
from contract.decisions.engine import DecisionEngine, DecisionJob, Readings
from contract.decisions.questions import Preset, Question

OTHERS = 31
STATES = (
    "My invoice is wrong and I was charged twice. Please refund the second payment.",
    "Since Tuesday the app shows a blank page after login. " * 8,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)


def run(options: argparse.Namespace) -> None:
    print("| from the cache | one at a time | among 32 | alone, ms | 32 at once, decisions a second |")
    print(f"|---|---|---|---|---|\n{asyncio.run(_row(options.rounds))}")


async def _row(rounds: int) -> str:
    catalog = configs.load("embedded")
    preset, apart, alone_s, together_s = catalog.presets["ticket-routing-v1"], [0.0] * 3, [], []
    with closing(models.load(catalog.decisions["decision-v2"])) as scorer:
        await scorer.measure([preset])
        for index in range(rounds * len(STATES)):
            found, one_s, all_s = await _drifts(scorer, STATES[index % len(STATES)], preset, f"{index}")
            apart = [max(pair) for pair in zip(apart, found, strict=True)]
            alone_s.append(one_s)
            together_s.append(all_s)
    drifts = " | ".join(f"{drift:.1e}" if drift else "0" for drift in apart)
    rate = len(together_s) * (OTHERS + 1) / sum(together_s)
    return f"| {drifts} | {sum(alone_s) / len(alone_s) * 1000:.0f} | {rate:.1f} |"


async def _drifts(
    scorer: DecisionEngine, state: str, preset: Preset, salt: str
) -> tuple[tuple[float, float, float], float, float]:
    """Drifts against the first read, seconds of that read, seconds of all together."""
    questions = tuple(preset.questions.values())

    async def read(text: str, asked: tuple[Question, ...], kind: str) -> Readings:
        return await scorer.decide(DecisionJob(text, asked, owner=f"{salt} {kind}"))

    started_s = time.perf_counter()
    alone = await read(state, questions, "alone")
    alone_s = time.perf_counter() - started_s
    again = await read(state, questions, "alone")
    singles = [await read(state, (question,), "single") for question in questions]
    single = Readings(tuple(found.reads[0] for found in singles), 0)
    states = [f"{state} {index} " + "and more " * index for index in range(OTHERS)]
    states.insert(OTHERS // 2, state)
    started_s = time.perf_counter()
    all_of_them = (
        read(text, questions if text == state else questions[:1], f"{index}") for index, text in enumerate(states)
    )
    together = (await asyncio.gather(*all_of_them))[OTHERS // 2]
    together_s = time.perf_counter() - started_s
    return (apart(alone, again), apart(alone, single), apart(alone, together)), alone_s, together_s


def apart(some: Readings, others: Readings) -> float:
    """The largest difference of any probability, at temperature 1."""
    pairs = zip(some.reads, others.reads, strict=True)
    both = ((distribution(first, 1.0).probabilities, distribution(other, 1.0).probabilities) for first, other in pairs)
    return max(abs(p - q) for first, other in both for p, q in zip(first, other, strict=True))
