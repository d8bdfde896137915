"""First sound and real-time factor of speech, and what the graph adds to both, at 1, 4 and 16 streams.

    python -m benchmarks.speed.speech
    python -m benchmarks.speed.speech --rounds 5

The embedded engine says a sentence in English, which Kokoro speaks, and one in Dutch, which espeak-ng speaks in a
thousandth of the time, so that it shows what the graph takes. In turns within one run: the adapter, encoded and
marked as always, in a process of its own; and the whole graph, with HAProxy, keys, limits and bills. Beside them
kokoro-onnx, the library that most people run Kokoro with, on the weights as they are published, where `make bench` has
made its environment; it gives samples, which nobody encodes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.servers import ROOT, Server, parlance, working_folder
from benchmarks.speed.load import Job, cuts_ms, measure
from benchmarks.speed.peers import of_its_own
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
YES_NO_LABELS = "adapter in a process of its own"
WHOLE = "the whole graph"
PEER = "kokoro-onnx in a process of its own"
PEER_VOICE = "af_heart"


@dataclass(frozen=True, slots=True)
class Figures:
    """One case: milliseconds at p50 and p95, requests a second, seconds of sound for each second."""

    first_ms: tuple[float, float]
    whole_ms: tuple[float, float]
    requests_per_s: float
    speed: float


# --- the bare engine, in a process of its own -------------------------------------------------------------------------


async def drive_adapter(case: Case, streams: int) -> dict[str, object]:
    """A closed loop over the adapter, without Ray and HTTP."""
    import configs
    import models

    engine = models.load(configs.load("embedded").speech[MODEL])
    job = SpeechJob(case.text, case.language, "F1")
    first_s: list[float] = []
    whole_s: list[float] = []

    async def stream(until_s: float) -> None:
        while True:
            started_s = time.perf_counter()
            is_first = True
            async for _ in engine.speak(job):
                if is_first:
                    first_s.append(time.perf_counter() - started_s)
                    is_first = False
            whole_s.append(time.perf_counter() - started_s)
            if time.perf_counter() >= until_s:
                return

    await asyncio.gather(*(stream(0.0) for _ in range(streams)))
    first_s.clear()
    whole_s.clear()
    started_s = time.perf_counter()
    await asyncio.gather(*(stream(started_s + case.seconds) for _ in range(streams)))
    elapsed_s = time.perf_counter() - started_s
    sound_s = (await engine.speak_whole(job)).seconds
    return {"first_s": first_s, "whole_s": whole_s, "elapsed_s": elapsed_s, "sound_s": sound_s}


def measure_adapter(case: Case, streams: int) -> tuple[Figures, float]:
    """The figures, and how many seconds the sentence lasts."""
    as_json = json.dumps(asdict(case))
    command = [sys.executable, "-m", "benchmarks.speed.speech", "--adapter", as_json, str(streams)]
    return told_by(command)


def measure_peer(python: Path, case: Case, streams: int) -> Figures:
    """The same of kokoro-onnx, by the interpreter that has it."""
    asked = {"text": case.text, "voice": PEER_VOICE, "streams": streams, "seconds": case.seconds}
    program = str(ROOT / "benchmarks/speed/kokoro_peer.py")
    return told_by([str(python), "-P", program, str(ensure("kokoro-82m")), json.dumps(asked)])[0]


def told_by(command: list[str]) -> tuple[Figures, float]:
    """What a closed loop in another process tells at its end."""
    done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)
    rate = len(done["whole_s"]) / done["elapsed_s"]
    first, whole = cuts_ms(done["first_s"]), cuts_ms(done["whole_s"])
    return Figures(first[:2], whole[:2], rate, rate * done["sound_s"]), done["sound_s"]


# --- the graph --------------------------------------------------------------------------------------------------------


def load(server: Server, text: str, language: str, streams: int, seconds: float) -> Job:
    body = json.dumps({"input": text, "voice": "F1", "language": language})
    return Job(server.port, "/v1/audio/speech", server.headers, body, streams, seconds)


def measure_graph(server: Server, case: Case, streams: int, sound_s: float) -> Figures:
    """Raises SystemExit if a single request fails."""
    results = measure(load(server, case.text, case.language, streams, case.seconds))
    if results.failures:
        raise SystemExit(f"requests failed at {streams} streams: {results.failures}")
    return Figures(results.first_ms[:2], results.whole_ms[:2], results.requests_per_s, results.requests_per_s * sound_s)


# --- the table --------------------------------------------------------------------------------------------------------


def compare(rounds: int) -> str:
    with working_folder("speech-") as folder, parlance(folder) as server:
        for case in CASES:
            measure(load(server, case.text, case.language, 1, 0.5))  # wakes the engine
        results = [_round(server) for _ in range(rounds)]
        return _table(results)


def ratios(server: Server) -> dict[str, float]:
    """The whole graph divided by the adapter alone: the time to the first byte of one stream, of a short run."""
    case = replace(CASES[0], seconds=4)
    measure(load(server, case.text, case.language, 1, 0.5))  # wakes the engine
    bare, sound_s = measure_adapter(case, 1)
    whole = measure_graph(server, case, 1, sound_s)
    return {f"{case.language}, time to first byte": whole.first_ms[0] / bare.first_ms[0]}


Found = dict[tuple[str, int, str], Figures]
"""Of one round, by language, streams and system."""


def _round(server: Server) -> Found:
    results: Found = {}
    for case in CASES:
        for streams in case.streams:
            bare, sound_s = measure_adapter(case, streams)
            results[case.language, streams, YES_NO_LABELS] = bare
            if case is CASES[0] and (python := of_its_own("kokoro")):
                results[case.language, streams, PEER] = measure_peer(python, case, streams)
            results[case.language, streams, WHOLE] = measure_graph(server, case, streams, sound_s)
    return results


def _table(rounds: list[Found]) -> str:
    head = "| language | streams | system | first byte p50, p95 ms | whole p50, p95 ms | requests/s | x real time |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    lines += [_row(*key, [results[key] for results in rounds]) for key in rounds[0]]
    return "\n".join(lines)


def _row(language: str, streams: int, system: str, rounds: list[Figures]) -> str:
    first = [statistics.median(each.first_ms[i] for each in rounds) for i in (0, 1)]
    whole = [statistics.median(each.whole_ms[i] for each in rounds) for i in (0, 1)]
    rate = statistics.median(each.requests_per_s for each in rounds)
    speed = statistics.median(each.speed for each in rounds)
    return (
        f"| {language} | {streams} | {system} | {first[0]:.1f}, {first[1]:.1f} | {whole[0]:.1f}, {whole[1]:.1f} "
        f"| {rate:.3g} | {speed:.3g} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--adapter", nargs=2, metavar=("CASE", "STREAMS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.adapter:
        case, streams = options.adapter
        print(json.dumps(asyncio.run(drive_adapter(Case(**json.loads(case)), int(streams)))))
        return
    print(compare(options.rounds))
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
