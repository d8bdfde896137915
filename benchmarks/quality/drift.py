"""How far the probabilities of one request move with what else the engine reads.

    python -m benchmarks.quality drift
    python -m benchmarks.quality drift --rounds 5 --modes plain float32

The adapter on the embedded weights, without Ray and HTTP, in a process for each mode. A request of three questions is
read alone, again from the prefix cache, one question at a time, and in the middle of 31 others of one question, whose
states begin like its own. Drift is the largest difference of any probability, at temperature 1.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from typing import Any

import configs
import models
from contract.catalog import DecisionModel
from contract.decisions.answers import distribution
from contract.decisions.engine import DecisionEngine, DecisionJob, Readings
from contract.decisions.questions import Preset, Question

OTHERS = 31
STATES = (
    "My invoice is wrong and I was charged twice. Please refund the second payment.",
    "Since Tuesday the app shows a blank page after login. " * 8,
)
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "head in bfloat16": {"engine": {"hf_overrides": {}}},
    "float32": {"engine": {"dtype": "float32", "kv_cache_memory_bytes": 1 << 29}},  # twice the bytes for each token
}
"""What each row changes in the options of the stanza; `engine` holds arguments of vLLM."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `python -m benchmarks.quality drift` takes."""
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--in-process", action="store_true", help="one mode, in this process")


def run(options: argparse.Namespace) -> None:
    """Prints the table, a row when it is known."""
    if options.in_process:
        print(asyncio.run(_row(options.modes[0], options.rounds)), flush=True)
        return
    print("| mode | from the cache | one at a time | among 32 | alone, ms | 32 at once, decisions a second |")
    print("|---|---|---|---|---|---|", flush=True)
    for mode in options.modes:
        command = [sys.executable, "-m", "evaluations", "drift", "--in-process", "--modes", mode]
        command += ["--rounds", str(options.rounds)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        # vLLM and its libraries print at a start as well.
        print(next(line for line in output.splitlines() if line.startswith("| ")), flush=True)


def _model(mode: str) -> DecisionModel:
    """`decision-v2` with the options of `mode`."""
    model = configs.load("embedded").decisions["decision-v2"]
    assert model.serving
    options = model.serving.options
    changed = options | MODES[mode] | {"engine": options["engine"] | MODES[mode].get("engine", {})}
    return model.model_copy(update={"serving": model.serving.model_copy(update={"options": changed})})


async def _row(mode: str, rounds: int) -> str:
    preset = configs.load("embedded").presets["ticket-routing-v1"]
    scorer = models.load(_model(mode))
    apart, alone_s, together_s = [0.0] * 3, [], []
    try:
        await scorer.measure([preset])
        for index in range(rounds * len(STATES)):
            found, one_s, all_s = await _drifts(scorer, STATES[index % len(STATES)], preset, f"{index}")
            apart = [max(pair) for pair in zip(apart, found, strict=True)]
            alone_s.append(one_s)
            together_s.append(all_s)
    finally:
        scorer.close()
    drifts = " | ".join(f"{drift:.1e}" if drift else "0" for drift in apart)
    rate = len(together_s) * (OTHERS + 1) / sum(together_s)
    return f"| {mode} | {drifts} | {sum(alone_s) / len(alone_s) * 1000:.0f} | {rate:.1f} |"


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
    return (_apart(alone, again), _apart(alone, single), _apart(alone, together)), alone_s, together_s


def _apart(some: Readings, others: Readings) -> float:
    """The largest difference of any probability, at temperature 1."""
    pairs = zip(some.reads, others.reads, strict=True)
    both = ((distribution(first, 1.0).probabilities, distribution(other, 1.0).probabilities) for first, other in pairs)
    return max(abs(p - q) for first, other in both for p, q in zip(first, other, strict=True))
