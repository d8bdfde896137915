"""How far the probabilities of one request move with what else the engine reads, and what it costs that they do not.

    python -m benchmarks.decision_drift
    python -m benchmarks.decision_drift --rounds 5 --modes plain exact

In this process, on the embedded weights. A request of three questions is read alone, again from the prefix cache,
one question at a time, and in the middle of 31 others of one question, whose states begin like its own. Drift is the
largest difference of any probability, at temperature 1.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from typing import Any

import configs
from contract.decisions.answers import distribution
from contract.decisions.engine import Measurement, Readings
from contract.decisions.presets import Preset
from models.decisions import LabelScorer
from models.weights.store import ensure

OTHERS = 31
STATES = (
    "My invoice is wrong and I was charged twice. Please refund the second payment.",
    "Since Tuesday the app shows a blank page after login. " * 8,
)
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "head in bfloat16": {"hf_overrides": {}},
    "float32": {"dtype": "float32", "kv_cache_memory_bytes": 1 << 29},  # twice the bytes for each token
    "exact": {"exact": True},
}
"""Options of the stanza by the name of a row."""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--in-process", action="store_true", help="one mode, in this process")
    options = parser.parse_args()
    if options.in_process:
        asyncio.run(_row(options.modes[0], options.rounds))
        return
    print("| mode | from the cache | one at a time | among 32 | alone, ms | 32 at once, decisions a second |")
    print("|---|---|---|---|---|---|", flush=True)
    for mode in options.modes:
        command = [sys.executable, "-m", "benchmarks.decision_drift", "--in-process", "--modes", mode]
        # What vLLM and its libraries say at a start is left out.
        command += ["--rounds", str(options.rounds)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        print(next(line for line in said.splitlines() if line.startswith("| ")), flush=True)


async def _row(mode: str, rounds: int) -> None:
    catalog = configs.load("embedded")
    model = catalog.decisions["decision-v1"]
    assert model.serving
    serving = model.serving.model_copy(update={"options": model.serving.options | MODES[mode]})
    scorer = LabelScorer(model.model_copy(update={"serving": serving}), ensure("smollm2-135m-instruct"))
    figures = {"questions": 1, "accuracy": 1.0, "label_mass": 1.0, "calibration_error": 0.0, "temperature": 1.0}
    scorer._measured = Measurement(measured_at=0, fingerprint="", prompt_version="", latency_ms=1.0, **figures)
    preset = catalog.presets["ticket-routing-v1"]
    apart, alone_s, together_s = [0.0] * 3, [], []
    for index in range(rounds * len(STATES)):
        found, one_s, all_s = await _drifts(scorer, STATES[index % len(STATES)], preset, f"{index}")
        apart = [max(pair) for pair in zip(apart, found, strict=True)]
        alone_s.append(one_s)
        together_s.append(all_s)
    scorer.close()
    drifts = " | ".join(f"{drift:.1e}" if drift else "0" for drift in apart)
    rate = len(together_s) * (OTHERS + 1) / sum(together_s)
    print(f"| {mode} | {drifts} | {sum(alone_s) / len(alone_s) * 1000:.0f} | {rate:.1f} |", flush=True)


async def _drifts(scorer: LabelScorer, state: str, preset: Preset, salt: str) -> tuple[list[float], float, float]:
    """Drifts against the first read, seconds of that read, seconds of all together."""
    questions = list(preset.questions.values())
    started = time.perf_counter()
    alone = await scorer.decide(state, questions, (), f"{salt} alone")
    alone_s = time.perf_counter() - started
    again = await scorer.decide(state, questions, (), f"{salt} alone")
    singles = [await scorer.decide(state, [question], (), f"{salt} single") for question in questions]
    single = Readings(tuple(found.reads[0] for found in singles), 0)
    states = [f"{state} {index} " + "and more " * index for index in range(OTHERS)]
    states.insert(OTHERS // 2, state)
    started = time.perf_counter()
    all_of_them = (
        scorer.decide(text, questions if text == state else questions[:1], (), f"{salt} {index}")
        for index, text in enumerate(states)
    )
    together = (await asyncio.gather(*all_of_them))[OTHERS // 2]
    return [_apart(alone, other) for other in (again, single, together)], alone_s, time.perf_counter() - started


def _apart(some: Readings, others: Readings) -> float:
    pairs = zip(some.reads, others.reads, strict=True)
    both = ((distribution(one, 1.0).probabilities, distribution(other, 1.0).probabilities) for one, other in pairs)
    return max(abs(p - q) for one, other in both for p, q in zip(one, other, strict=True))


if __name__ == "__main__":
    main()
