"""First sound and real-time factor of speech, and what the graph adds to both, at 1, 4 and 16 streams.

    python -m benchmarks.speed.speech

A sentence in English is spoken by Kokoro, one in Dutch by espeak-ng in a thousandth of the time, so that it shows what
the graph takes. In turns: the adapter, encoded and marked as always, in a process of its own; the whole graph; and
kokoro-onnx, the library that most people run Kokoro with, on the weights as they are published, where `make bench` has
made its environment: its samples are not encoded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

from benchmarks.servers import Server, parlance, printed_by, working_folder
from benchmarks.speed.load import Job, cuts_ms, measure
from benchmarks.speed.peers import of_its_own
from benchmarks.speed.sound_loop import sound_loop
from benchmarks.tables import show, table
from contract.speech.engine import SpeechJob
from models.weights.store import ensure

MODEL = "supertonic-3"


@dataclass(frozen=True, slots=True)
class Case:
    """What is said, to how many at once, and for how long it is measured."""

    language: str
    text: str
    streams: tuple[int, ...]
    seconds: float


CASES = (
    Case("en", "The morning train to the coast leaves from platform nine at half past seven, sir.", (1, 4), 30),
    Case("nl", "De ochtendtrein naar de kust vertrekt om half acht van spoor negen en wacht nooit.", (1, 4, 16), 3),
)
ADAPTER = "adapter in a process of its own"
WHOLE = "the whole graph"
PEER = "kokoro-onnx in a process of its own"
PEER_VOICE = "af_heart"


class Figures(NamedTuple):
    """One case: milliseconds, requests a second, and seconds of sound for each second."""

    first_p50_ms: float
    first_p95_ms: float
    whole_p50_ms: float
    whole_p95_ms: float
    requests_per_s: float
    speed: float


def drive_adapter(case: Case, streams: int) -> dict[str, object]:
    """A closed loop over the adapter, without Ray and HTTP."""
    import configs
    import models

    engine = models.load(configs.load("embedded").speech[MODEL])

    async def speak() -> AsyncIterator[float]:
        async for block in engine.speak(SpeechJob(case.text, case.language, "F1")):
            yield block.seconds

    return asyncio.run(sound_loop(speak, streams, case.seconds))


def measure_adapter(case: Case, streams: int) -> tuple[Figures, float]:
    """The figures, and how many seconds the sentence lasts."""
    return told_by(sys.executable, "speech", "--adapter", json.dumps(asdict(case)), str(streams))


def measure_peer(python: Path, case: Case, streams: int) -> Figures:
    """The same of kokoro-onnx, by the interpreter that has it."""
    asked = {"text": case.text, "voice": PEER_VOICE, "streams": streams, "seconds": case.seconds}
    return told_by(str(python), "kokoro_peer", str(ensure("kokoro-82m")), json.dumps(asked))[0]


def told_by(python: str, module: str, *arguments: str) -> tuple[Figures, float]:
    """What a closed loop in another process tells at its end."""
    done = printed_by(f"benchmarks.speed.{module}", *arguments, python=python)
    rate = len(done["whole_s"]) / done["elapsed_s"]
    cuts = (*cuts_ms(done["first_s"])[:2], *cuts_ms(done["whole_s"])[:2])
    return Figures(*cuts, rate, rate * done["sound_s"]), done["sound_s"]


def load(server: Server, text: str, language: str, streams: int, seconds: float) -> Job:
    body = json.dumps({"input": text, "voice": "F1", "language": language})
    return Job(server.port, "/v1/audio/speech", server.headers, body, streams, seconds)


def measure_graph(server: Server, case: Case, streams: int, sound_s: float) -> Figures:
    """Raises SystemExit if a single request fails."""
    results = measure(load(server, case.text, case.language, streams, case.seconds))
    if results.failures:
        raise SystemExit(f"requests failed at {streams} streams: {results.failures}")
    rate = results.requests_per_s
    return Figures(*results.first_ms[:2], *results.whole_ms[:2], rate, rate * sound_s)


def compare(rounds: int) -> str:
    figures: defaultdict[tuple[str, int, str], list[Figures]] = defaultdict(list)
    with working_folder("speech-") as folder, parlance(folder) as server:
        for case in CASES:
            measure(load(server, case.text, case.language, 1, 0.5))  # wakes the engine
        for _, case in product(range(rounds), CASES):
            for streams in case.streams:
                bare, sound_s = measure_adapter(case, streams)
                figures[case.language, streams, ADAPTER].append(bare)
                if case is CASES[0] and (python := of_its_own("kokoro")):
                    figures[case.language, streams, PEER].append(measure_peer(python, case, streams))
                figures[case.language, streams, WHOLE].append(measure_graph(server, case, streams, sound_s))
    rows = []
    for key, samples in figures.items():
        cuts = [statistics.median(column) for column in zip(*samples, strict=True)]
        first, whole = (f"{p50:.1f}, {p95:.1f}" for p50, p95 in (cuts[:2], cuts[2:4]))
        rows.append((*key, first, whole, *(f"{rate:.3g}" for rate in cuts[4:])))
    head = "language | streams | system | first byte p50, p95 ms | whole p50, p95 ms | requests/s | x real time"
    return table(head, rows)


def ratios(folder: Path) -> dict[str, float]:
    """The whole graph divided by the adapter alone: the time to the first byte of one stream, of a short run."""
    case = replace(CASES[0], seconds=4)
    with parlance(folder) as server:
        measure(load(server, case.text, case.language, 1, 0.5))  # wakes the engine
        bare, sound_s = measure_adapter(case, 1)
        whole = measure_graph(server, case, 1, sound_s)
    return {f"{case.language}, time to first byte": whole.first_p50_ms / bare.first_p50_ms}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--adapter", nargs=2, metavar=("CASE", "STREAMS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.adapter:
        case, streams = options.adapter
        print(json.dumps(drive_adapter(Case(**json.loads(case)), int(streams))))
        return
    show(compare(options.rounds))


if __name__ == "__main__":
    main()
