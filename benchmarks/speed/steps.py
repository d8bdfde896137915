"""Steps of the chat engine alone, in turns: vLLM's own, quick ones, and with weights in 8 bits. No graph, no clients.

    python -m benchmarks.speed.steps

Each turn is three processes, one for each way. Prompts have 125 random tokens, answers 54; a step counts in which every
stream got its next token, and reading is all that comes before the first of those. The table gives medians over turns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import configs
from benchmarks import tables
from benchmarks.servers import printed_by
from benchmarks.speed.peers import MODEL
from models.llm import adapter, engine
from models.llm.arguments import EngineOptions
from models.weights import store as weights

PROMPT_TOKENS = 125
ANSWER_TOKENS = 54
WAYS = ("own", "quick", "int8")

Figures = Mapping[str, tuple[float, float]]
"""By the number of streams: milliseconds of reading, and of a step."""


def measure(folder: Path, way: str, streams: list[int]) -> Figures:
    stanza = configs.load("embedded").chat[MODEL]
    options = EngineOptions(engine=stanza.setup.options["engine"], quick_steps=way != "own", int8=way == "int8")
    llm = engine.start(adapter.spec_of(stanza, folder, 2048, options, options.engine))
    once(llm, 1)
    return {str(count): once(llm, count) for count in streams}


def once(llm: Any, streams: int) -> tuple[float, float]:
    """Milliseconds of reading and of the median step of so many answers that began together."""
    from vllm.inputs import tokens_input
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    params = SamplingParams(
        max_tokens=ANSWER_TOKENS, temperature=0, ignore_eos=True, output_kind=RequestOutputKind.DELTA
    )
    prompts = [random.choices(range(300, 40_000), k=PROMPT_TOKENS) for _ in range(streams)]
    tasks = llm.engine_core.get_supported_tasks()
    requests = [
        llm.input_processor.process_inputs(f"{time.time()} {index}", tokens_input(prompt), params, tasks)
        for index, prompt in enumerate(prompts)
    ]
    core = llm.engine_core

    def run() -> tuple[float, float]:
        for request in requests:
            core.add_request(request)
        began = ended = time.perf_counter()
        reading, steps = 0.0, list[float]()
        while core.engine_core.scheduler.has_requests():
            answered = len(core.get_output().outputs)
            before, ended = ended, time.perf_counter()
            if answered == streams:
                steps.append(ended - before)
                reading = reading or ended - began
        return 1000 * reading, 1000 * statistics.median(steps[1:])

    return core.call(run)  # type: ignore[no-any-return]


def child(folder: Path, way: str, streams: list[int]) -> Figures:
    """The same in a process of its own."""
    arguments = ("--weights", str(folder), "--way", way, "--streams", *map(str, streams))
    return printed_by("benchmarks.speed.steps", *arguments)  # type: ignore[no-any-return]


def table(turns: Mapping[str, list[Figures]], streams: list[int]) -> str:
    rows: list[tuple[object, ...]] = []
    for count in streams:
        medians = {
            way: [statistics.median(values) for values in zip(*(turn[str(count)] for turn in found), strict=True)]
            for way, found in turns.items()
        }
        for way, (reading, step) in medians.items():
            rows.append((count, way, f"{reading:.0f}", f"{step:.1f}", f"{1000 * count / step:.0f}"))
        for way in WAYS[1:]:
            ratios = [own / other for own, other in zip(medians["own"], medians[way], strict=True)]
            rows.append((count, f"**{way}, times as fast**", f"{ratios[0]:.2f}", f"**{ratios[1]:.2f}**", ""))
    return tables.table("streams | steps | reading ms | step ms | tokens/s", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, help="a folder that vLLM loads; the embedded model otherwise")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--way", choices=WAYS, help="measures one way in this process, and prints JSON")
    arguments = parser.parse_args()
    folder = arguments.weights or weights.ensure(MODEL)
    if arguments.way:
        print(json.dumps(measure(folder, arguments.way, arguments.streams)), flush=True)
        os._exit(0)  # taking the engine apart takes seconds
    turns = defaultdict[str, list[Figures]](list)
    for _ in range(arguments.turns):
        for way in WAYS:
            turns[way].append(child(folder, way, arguments.streams))
    print(table(turns, arguments.streams))


if __name__ == "__main__":
    main()
